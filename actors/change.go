package actors

import (
	"fmt"
	"slices"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe/telemetry/event"
)

// changes are a scheduler actor's.
type changes struct {
	due     []Request      // that take effect at a step to come
	rates   []event.Change // in effect, in the order of their steps
	pauses  bool           // the journal has one that no resumption there takes back
	writing int            // that are not journalled yet
	resumes int            // resumptions among them
	held    []Request      // pauses that were asked for after those: they take effect after them
	hold    int64          // the first step behind which one of those takes effect
}

// journal asks the metrics actor to journal a change; journalled says that it is.
type (
	journal struct {
		Header
		request Request
	}
	journalled struct {
		Header
		request Request
	}
)

// newChanges takes up those that were journalled: rates from the beginning, the rest from
// the step on that the run goes on from.
func newChanges(journalled []event.Change, step int64) (c changes) {
	for _, ch := range journalled {
		c.journalled(ch)
		if ch.Kind == event.ChangeRate || ch.Kind == event.ChangeResume || ch.Step > step {
			c.take(Request{Change: ch})
		}
	}
	return c
}

// journalled notes a change that the journal has.
func (c *changes) journalled(ch event.Change) {
	switch ch.Kind {
	case event.ChangePause:
		c.pauses = true
	case event.ChangeResume:
		c.pauses = false
	}
}

// take notes a change that is journalled, or needs no journal. It returns the rates that it cancels.
func (c *changes) take(r Request) (cancelled []event.Change) {
	switch r.Kind {
	case event.ChangeRate: // of several at a step the last one counts
		// Those that were to take effect at once belong to steps that were lost since.
		c.rates = slices.DeleteFunc(c.rates, func(o event.Change) bool {
			pending := o.Now && o.Step > r.Step
			if pending {
				cancelled = append(cancelled, o)
			}
			return pending
		})
		i := len(c.rates)
		for i > 0 && c.rates[i-1].Step > r.Step {
			i--
		}
		c.rates = slices.Insert(c.rates, i, r.Change)
	case event.ChangeResume:
		c.due = slices.DeleteFunc(c.due, func(o Request) bool { return o.Kind == event.ChangePause })
	default:
		c.due = append(c.due, r)
	}
	return cancelled
}

// between reports whether a change takes effect when a step has ended, as far as is known.
func (c *changes) between(step int64) bool {
	return c.writing > 0 || slices.ContainsFunc(c.due, func(r Request) bool { return r.Step <= step })
}

// rate is the learning rate of a step.
func (a *schedulerActor) rate(step int64) float64 {
	r := a.spec.Rate
	for _, ch := range a.changes.rates {
		if ch.Step < step {
			r.LR, r.MinLR = ch.LR, ch.MinLR
		}
	}
	return r.At(step)
}

// request takes a change. What has to be journalled takes effect when it is; until then no
// step after it begins.
func (a *schedulerActor) request(ctx actor.Context, r Request) {
	err := r.Check()
	if err == nil && r.Kind == event.ChangeStop && r.Step > 0 {
		err = a.stopsAt(r.Step)
	}
	if err != nil {
		ctx.Send(a.peers.Metrics, &publish{event.ChangeEvent{Change: r.Change, Err: err}})
		a.tell(ctx, r.ID, r.Step, true)
		return
	}
	now := a.state.Step
	if a.phase == event.Train {
		now++
	}
	// What names no step changes no figures, and need not happen again; a resumption only takes
	// back what would.
	needs := r.Step > 0 || r.Kind == event.ChangeRate
	if r.Kind == event.ChangeResume {
		needs = a.changes.pauses || a.changes.writing > 0 // one of those may be a pause, which it must not overtake
	}
	r.Now = r.Kind == event.ChangeRate && r.Step == 0
	switch {
	case r.Kind == event.ChangePause && r.Step == 0 && a.changes.resumes > 0:
		a.changes.held = append(a.changes.held, r)
		return
	case r.Kind == event.ChangeResume:
		a.changes.held = nil // those it takes back
	}
	if r.Step = max(r.Step, now); a.spec.WriteChange == nil || !needs {
		a.changed(ctx, r, false)
		return
	}
	if a.changes.writing++; a.changes.writing == 1 || r.Step < a.changes.hold {
		a.changes.hold = r.Step
	}
	if r.Kind == event.ChangeResume {
		a.changes.resumes++
	}
	ctx.Request(a.peers.Metrics, &journal{a.header(), r})
}

// resumed applies the pauses that waited until a resumption was journalled.
func (a *schedulerActor) resumed(ctx actor.Context) {
	if a.changes.resumes--; a.changes.resumes > 0 {
		return
	}
	held := a.changes.held
	a.changes.held = nil
	for _, r := range held {
		a.request(ctx, r)
	}
}

// stopsAt says why the run can't stop at the end of a step. Whoever names one wants the
// checkpoint of that step, no other.
func (a *schedulerActor) stopsAt(step int64) error {
	switch {
	case step <= a.state.Step:
		return fmt.Errorf("%w: step %d has ended, %d steps have; name a later one, or none to stop as soon as possible", event.ErrStep, step,
			a.state.Step)
	case step > a.spec.Steps:
		return fmt.Errorf("%w: it ends with step %d, before step %d", event.ErrStep, a.spec.Steps, step)
	}
	return nil
}

// changed puts a change into effect, or notes it for its step; journalled says that the journal has it.
func (a *schedulerActor) changed(ctx actor.Context, r Request, journalled bool) {
	cancelled := a.changes.take(r)
	if r.Kind == event.ChangeResume {
		a.pause = false
		if a.paused {
			a.paused = false
			ctx.Send(a.peers.Metrics, &publish{event.PauseEvent{Step: a.state.Step, Paused: false}})
		}
	}
	ctx.Send(a.peers.Metrics, &publish{event.ChangeEvent{Change: r.Change, Cancelled: cancelled}})
	if done := r.Kind == event.ChangeResume || r.Kind == event.ChangeRate; done || journalled {
		a.tell(ctx, r.ID, r.Step, done)
	}
	a.takeDue()
}

// takeDue takes up what is due at the step that has ended, or is in progress.
func (a *schedulerActor) takeDue() {
	reached := a.state.Step
	if a.phase == event.Train {
		reached++
	}
	a.changes.due = slices.DeleteFunc(a.changes.due, func(r Request) bool {
		if r.Step > reached {
			return false
		}
		switch r.Kind {
		case event.ChangePause:
			a.pause = true
		case event.ChangeCheckpoint:
			a.saveNow = true
			if r.ID > 0 {
				a.saves.wanted = append(a.saves.wanted, r.ID)
			}
		case event.ChangeStop:
			a.stop = true
		}
		return true
	})
}
