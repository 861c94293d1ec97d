package event

// Subscription is one of any number of readers of a run's events.
type Subscription struct {
	events <-chan Event
	close  func()
}

// NewSubscription reads a channel of events; end says that nobody reads it any more.
func NewSubscription(events <-chan Event, end func()) *Subscription {
	return &Subscription{events, end}
}

// Events are what happens from now on, in order; the channel is closed when the run has ended, and by
// Close. A reader that is too slow loses step events, or their traces, and a WarningEvent says how many; the run
// doesn't wait.
func (s *Subscription) Events() <-chan Event { return s.events }

// Close ends the subscription.
func (s *Subscription) Close() { s.close() }
