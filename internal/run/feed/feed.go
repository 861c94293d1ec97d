// Package feed gives a run's events to any number of readers, each in order. A reader that is too slow loses step
// events, or their traces, and is told how many; nobody waits for it.
package feed

import (
	"fmt"

	"github.com/troupe-ml/troupe/internal/run/fanout"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// Limit is how many events may wait for a reader.
const Limit = 1024

// limitTraces is how many traces of steps may wait for a reader of events, who asked for none of
// them by the configuration: step events after them come without.
const limitTraces = 8

// Feed is what subscriptions are of.
type Feed struct{ *fanout.Feed[event.Event] }

// New makes one without readers.
func New() Feed {
	return Feed{fanout.New(Limit, func(n int) event.Event { return Dropped(n) })}
}

// Publish gives an event to every reader.
func (f Feed) Publish(e event.Event) {
	s, step := e.(event.StepEvent)
	f.Feed.Publish(!step, func(waiting int) event.Event {
		if step {
			return Thinned(s, waiting)
		}
		return e
	})
}

// Subscribe gives the events from now on to one more reader.
func (f Feed) Subscribe() *event.Subscription {
	r := f.Feed.Subscribe()
	return event.NewSubscription(r.Values(), r.Close)
}

// Thinned is a step event for a reader with so many events waiting. Of traces, which may be large, few wait.
func Thinned(s event.StepEvent, waiting int) event.StepEvent {
	if waiting >= limitTraces {
		s.Trace, s.Clocks = nil, nil
	}
	return s
}

// Dropped says how many events were lost.
func Dropped(n int) event.WarningEvent {
	return event.WarningEvent{Text: fmt.Sprintf("%d events were dropped: nobody read them", n)}
}
