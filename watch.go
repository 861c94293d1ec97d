package troupe

import (
	"fmt"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/internal/run/feed"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// Actions is what was recorded of the order that a run's stages work on: see Run.Record.
type Actions = event.Actions

// ActionTime says when an action ran.
type ActionTime = event.ActionTime

// Subscription is one of any number of readers of a run's events.
type Subscription = event.Subscription

// outlet gives a run's events to all who read them. The run's mu guards it.
type outlet struct {
	events  chan Event
	feed    feed.Feed // of the subscriptions
	actor   *runActor // nil: there is none
	traced  int64     // the configuration has every so many steps traced; 0: none
	dropped int
}

// publish gives an event to all who read them. A reader that is too slow loses step events, and is
// told how many.
func (o *outlet) publish(e Event) {
	o.feed.Publish(e)
	s, step := e.(StepEvent)
	if step && (o.traced == 0 || int64(s.Step)%o.traced != 0) { // else whoever reads them wants the trace
		e = feed.Thinned(s, max(len(o.events), o.actor.waiting()))
	}
	o.actor.tell(e)
	if step && len(o.events) >= cap(o.events)-16 {
		o.dropped++
		return
	}
	if len(o.events) < cap(o.events)-17 {
		o.tellDropped()
	}
	select {
	case o.events <- e:
	default:
		o.dropped++
	}
}

// tellDropped says how many events were lost, if there is room.
func (o *outlet) tellDropped() {
	if o.dropped == 0 || len(o.events) == cap(o.events) {
		return
	}
	o.events <- feed.Dropped(o.dropped)
	o.dropped = 0
}

// send publishes an event, and marks what people look for later.
func (r *Run) send(e Event) {
	if q, ok := e.(actors.RequestEvent); ok {
		r.mu.Lock()
		r.requests.Event(q)
		r.mu.Unlock()
		return
	}
	r.publish(e)
	if c, ok := e.(ChangeEvent); ok {
		for _, old := range c.Cancelled {
			r.warn("the learning rate %g from step %d on cancels %g, which was asked for in a step that was lost and was to come back after step %d",
				c.LR, c.Step+1, old.LR, old.Step)
		}
	}
	switch e.(type) {
	case StepEvent, CheckpointEvent: // which come while the attempt goes on, whose sampler it is
		r.attempt.Event(e)
	}
	r.unmarked(r.marks.Event(e, r.ended())) // and not before: it may wait for the disk
}

// publish gives an event to all who read them.
func (r *Run) publish(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s, ok := e.(StepEvent); ok {
		r.step = int64(s.Step)
		if s.ValLoss != nil {
			r.result.LastValLoss = *s.ValLoss
		}
	}
	r.out.publish(e)
}

func (r *Run) warn(format string, args ...any) {
	r.send(WarningEvent{Text: fmt.Sprintf(format, args...)})
}

// unmarked says that what happens can't be written to events.jsonl. The run continues.
func (r *Run) unmarked(err error) {
	if err != nil {
		r.publish(WarningEvent{Text: fmt.Sprintf("what happens to the run is no longer written: %v", err)})
	}
}

// ended is the step that has ended last.
func (r *Run) ended() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.step
}

// Events are what happens, in order; the channel is closed when the run has
// ended. Nobody needs to read it.
func (r *Run) Events() <-chan Event { return r.out.events }

// Subscribe gives the run's events from now on to one more reader. Events are not taken away
// from other readers, or from Events.
func (r *Run) Subscribe() *Subscription { return r.out.feed.Subscribe() }
