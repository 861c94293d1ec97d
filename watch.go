package troupe

import eventfeed "github.com/troupe-ml/troupe/internal/feed"

// Subscription is one of any number of readers of a run's events.
type Subscription struct{ reader *eventfeed.Reader[Event] }

// NewSubscription makes one, for packages of this module that pass a run's events on.
func NewSubscription(r *eventfeed.Reader[Event]) *Subscription { return &Subscription{r} }

// NewEventFeed makes what such subscriptions are of.
func NewEventFeed() *eventfeed.Feed[Event] {
	return eventfeed.New(LimitEvents, func(n int) Event { return droppedWarning(n) })
}

// PublishEvent gives an event to every reader of a feed.
func PublishEvent(f *eventfeed.Feed[Event], e Event) {
	_, step := e.(StepEvent)
	f.Publish(!step, func(int) Event { return e })
}

// Events are what happens from now on, in order; the channel is closed when the run has ended, and by
// Close. A reader that is too slow loses step events, and a WarningEvent says how many; the run
// doesn't wait.
func (s *Subscription) Events() <-chan Event { return s.reader.Values() }

// Close ends the subscription.
func (s *Subscription) Close() { s.reader.Close() }

// Subscribe gives the run's events from now on to one more reader. Events are not taken away
// from other readers, or from Events.
func (r *Run) Subscribe() *Subscription { return NewSubscription(r.feed.Subscribe()) }
