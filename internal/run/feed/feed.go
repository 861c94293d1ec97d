// Package feed passes a run's events to any number of readers, each in order. A reader that is too slow loses step
// events, or their traces, and a warning tells it how many. The run never waits for a reader.
package feed

import (
	"fmt"

	"github.com/troupe-ml/troupe/internal/run/fanout"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// Limit is the largest number of events that wait for a reader.
const Limit = 1024

// limitTraces is the largest number of traces that wait for a reader, unless run.trace_every requests
// them: further step events have no trace.
const limitTraces = 8

// Feed passes events to subscriptions.
type Feed struct{ *fanout.Feed[event.Event] }

// New returns a feed without readers.
func New() Feed {
	return Feed{fanout.New(Limit, func(n int) event.Event { return Dropped(n) })}
}

// Publish passes an event to every reader.
func (f Feed) Publish(e event.Event) {
	s, step := e.(event.StepEvent)
	f.Feed.Publish(!step, func(waiting int) event.Event {
		if step {
			return Thinned(s, waiting)
		}
		return e
	})
}

// Subscribe returns a new reader of the events from now on.
func (f Feed) Subscribe() *event.Subscription {
	r := f.Feed.Subscribe()
	return event.NewSubscription(r.Values(), r.Close)
}

// Thinned returns a step event for a reader for whom events are waiting. Traces may be large, so only a few may wait.
func Thinned(s event.StepEvent, waiting int) event.StepEvent {
	if waiting >= limitTraces {
		s.Trace, s.Clocks = nil, nil
	}
	return s
}

// Dropped returns a warning about n dropped events.
func Dropped(n int) event.WarningEvent {
	return event.WarningEvent{Text: fmt.Sprintf("%d events were dropped: the reader is too slow", n)}
}
