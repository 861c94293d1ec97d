package event

// Subscription reads a run's events. A run can have any number of subscriptions.
type Subscription struct {
	events <-chan Event
	close  func()
}

// NewSubscription returns a subscription that reads a channel of events. Close calls end.
func NewSubscription(events <-chan Event, end func()) *Subscription {
	return &Subscription{events, end}
}

// Events returns the channel of the events from now on, in order. It is closed after the run has ended, and by Close.
// The run does not wait for a slow reader: the reader loses step events or their traces, and a WarningEvent tells it
// how many.
func (s *Subscription) Events() <-chan Event { return s.events }

// Close ends the subscription.
func (s *Subscription) Close() { s.close() }
