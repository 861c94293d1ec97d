package troupe

import (
	"fmt"
	"time"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/internal/run/feed"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// Actions are the recorded actions of a step: see Run.Record.
type Actions = event.Actions

// ActionTime is when an action ran.
type ActionTime = event.ActionTime

// Subscription is a reader of a run's events. A run may have any number: see Run.Subscribe.
type Subscription = event.Subscription

// outlet passes a run's events to all readers. The run's mu guards it.
type outlet struct {
	events  chan Event
	feed    feed.Feed // of the subscriptions
	actor   *runActor // nil: there is none
	traced  int64     // run.trace_every; 0: no step is traced
	dropped int
}

// publish passes an event to all readers. A reader that is too slow loses step events, and a warning tells it
// how many.
func (o *outlet) publish(e Event) {
	o.feed.Publish(e)
	s, step := e.(StepEvent)
	if step && (o.traced == 0 || int64(s.Step)%o.traced != 0) { // a traced step keeps its trace
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

// tellDropped reports how many events were dropped, if there is room.
func (o *outlet) tellDropped() {
	if o.dropped == 0 || len(o.events) == cap(o.events) {
		return
	}
	o.events <- feed.Dropped(o.dropped)
	o.dropped = 0
}

// send publishes an event and writes it to events.jsonl.
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
			r.warn("the learning rate %g from step %d cancels an earlier change to %g, which the run would have repeated after step %d",
				c.LR, c.Step+1, old.LR, old.Step)
		}
	}
	switch e.(type) {
	case StepEvent, CheckpointEvent: // the attempt is still running, and its sampler needs them
		r.attempt.Event(e)
	}
	r.unmarked(r.marks.Event(e, r.ended())) // last, because it may wait for the disk
}

// publish passes an event to all readers.
func (r *Run) publish(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch e := e.(type) {
	case StepEvent:
		r.step = int64(e.Step)
		if e.ValLoss != nil {
			r.result.LastValLoss = *e.ValLoss
		}
		if e.StepMS != nil {
			r.meter.Add(time.Duration(*e.StepMS*float64(time.Millisecond)), 0)
		}
	case PauseEvent:
		if r.pausedAt = -1; e.Paused {
			r.pausedAt = e.Step
		}
	}
	r.out.publish(e)
}

func (r *Run) warn(format string, args ...any) {
	r.send(WarningEvent{Text: fmt.Sprintf(format, args...)})
}

// unmarked warns that events.jsonl cannot be written. The run continues.
func (r *Run) unmarked(err error) {
	if err != nil {
		r.publish(WarningEvent{Text: fmt.Sprintf("events are no longer written to events.jsonl: %v", err)})
	}
}

// ended is the last step that has ended.
func (r *Run) ended() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.step
}

// Events returns the run's events, in order. The run closes the channel when it
// ends. You need not read it.
func (r *Run) Events() <-chan Event { return r.out.events }

// Subscribe returns a new reader of the run's events from now on. Other readers and Events still get
// every event.
func (r *Run) Subscribe() *Subscription { return r.out.feed.Subscribe() }
