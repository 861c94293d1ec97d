package troupe

import (
	"time"

	"github.com/troupe-ml/troupe/internal/run/fanout"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// Actions is what was recorded of the order that a run's stages work on: see Run.Record.
type Actions = event.Actions

// ActionTime says when an action ran.
type ActionTime = event.ActionTime

// Subscription is one of any number of readers of a run's events.
type Subscription struct{ reader *fanout.Reader[Event] }

// NewSubscription makes one, for packages of this module that pass a run's events on.
func NewSubscription(r *fanout.Reader[Event]) *Subscription { return &Subscription{r} }

// NewEventFeed makes what such subscriptions are of.
func NewEventFeed() *fanout.Feed[Event] {
	return fanout.New(LimitEvents, func(n int) Event { return droppedWarning(n) })
}

// PublishEvent gives an event to every reader of a feed.
func PublishEvent(f *fanout.Feed[Event], e Event) {
	s, step := e.(StepEvent)
	f.Publish(!step, func(waiting int) Event {
		if step {
			return thinned(s, waiting)
		}
		return e
	})
}

// Events are what happens from now on, in order; the channel is closed when the run has ended, and by
// Close. A reader that is too slow loses step events, or their traces, and a WarningEvent says how many; the run
// doesn't wait.
func (s *Subscription) Events() <-chan Event { return s.reader.Values() }

// Close ends the subscription.
func (s *Subscription) Close() { s.reader.Close() }

// Subscribe gives the run's events from now on to one more reader. Events are not taken away
// from other readers, or from Events.
func (r *Run) Subscribe() *Subscription { return NewSubscription(r.feed.Subscribe()) }

// Record times the actions of the steps and validations that begin within d from now, for those who watch:
// StepEvent.Trace is there then, for all ranks, and Actions has what is done of the step under way. Calling it again
// extends it. What is trained stays the same, to the bit, and it takes next to no time. Only run.trace_every writes trace.jsonl.
func (r *Run) Record(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if until := time.Now().Add(d); until.After(r.recordUntil) {
		r.recordUntil = until
	}
	if r.inner != nil && !r.between {
		r.inner.Record(d)
	}
}

// Actions is what was recorded so far of the step or the validation under way, or between two of the
// last one; what runs now is in Status. It answers at any moment, also where the stages wait for each other.
func (r *Run) Actions() Actions {
	r.mu.Lock()
	inner := r.inner
	r.mu.Unlock()
	if inner == nil {
		return Actions{}
	}
	return inner.Actions()
}

// thinned is a step event for a reader with so many events waiting. Of traces, which may be large, few wait.
func thinned(s StepEvent, waiting int) StepEvent {
	if waiting >= limitTraces {
		s.Trace, s.Clocks = nil, nil
	}
	return s
}
