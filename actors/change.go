package actors

import (
	"errors"
	"fmt"
	"slices"

	"github.com/asynkron/protoactor-go/actor"
)

// Change is a request to a run: what is to happen when Step steps have ended. Where it
// changes what is computed, or names a step, it is journalled before it takes effect, and
// takes effect at the same step again when the run goes on from an older checkpoint. One that
// names a step which has ended takes effect with the one in progress; a stop there is refused.
type Change struct {
	Kind ChangeKind `json:"kind"`
	Step int64      `json:"step"` // 0: when the step in progress has ended
	// Of SetRate: the peak of the learning rate, and where its decay ends, from the step
	// after Step on.
	LR    float64 `json:"lr,omitempty"`
	MinLR float64 `json:"min_lr,omitempty"`
}

// ChangeKind says what is to happen.
type ChangeKind string

// The kinds of changes.
const (
	Pause      ChangeKind = "pause"
	Resume     ChangeKind = "resume" // takes every pause back, at once
	Checkpoint ChangeKind = "checkpoint"
	Stop       ChangeKind = "stop"
	SetRate    ChangeKind = "rate"
)

// ErrStep: a run can't stop at the step that a change names.
var ErrStep = errors.New("the run can't stop at that step")

// Check says what is wrong with a change.
func (c Change) Check() error {
	switch {
	case !slices.Contains([]ChangeKind{Pause, Resume, Checkpoint, Stop, SetRate}, c.Kind):
		return fmt.Errorf("%.100q is no change of a run: it is pause, resume, checkpoint, stop or rate", c.Kind)
	case c.Step < 0:
		return fmt.Errorf("a change at step %d: give 1 or more, or 0 for as soon as possible", c.Step)
	case c.Kind == SetRate && !(c.LR > 0 && c.MinLR >= 0 && finite(c.LR) && finite(c.MinLR)):
		return fmt.Errorf("a learning rate from %g to %g: give a finite number above 0, and one from 0", c.LR, c.MinLR)
	case c.Kind != SetRate && (c.LR != 0 || c.MinLR != 0):
		return fmt.Errorf("a learning rate with %s, which has none", c.Kind)
	}
	return nil
}

// changes are a scheduler actor's.
type changes struct {
	due     []Change // that take effect at a step to come
	rates   []Change // in effect, in the order of their steps
	pauses  bool     // the journal has one that no resumption there takes back
	writing int      // that are not journalled yet
	hold    int64    // the first step behind which one of those takes effect
}

// journal asks the metrics actor to journal a change; journalled says that it is.
type (
	journal struct {
		Header
		change Change
	}
	journalled struct {
		Header
		change Change
	}
)

// newChanges takes up those that were journalled: rates from the beginning, the rest from
// the step on that the run goes on from.
func newChanges(journalled []Change, step int64) (c changes) {
	for _, ch := range journalled {
		c.journalled(ch)
		if ch.Kind == SetRate || ch.Kind == Resume || ch.Step > step {
			c.take(ch)
		}
	}
	return c
}

// journalled notes a change that the journal has.
func (c *changes) journalled(ch Change) {
	switch ch.Kind {
	case Pause:
		c.pauses = true
	case Resume:
		c.pauses = false
	}
}

// take notes a change that is journalled, or needs no journal.
func (c *changes) take(ch Change) {
	switch ch.Kind {
	case SetRate: // of several at a step the last one counts
		i := len(c.rates)
		for i > 0 && c.rates[i-1].Step > ch.Step {
			i--
		}
		c.rates = slices.Insert(c.rates, i, ch)
	case Resume:
		c.due = slices.DeleteFunc(c.due, func(o Change) bool { return o.Kind == Pause })
	default:
		c.due = append(c.due, ch)
	}
}

// between reports whether a change takes effect when a step has ended, as far as is known.
func (c *changes) between(step int64) bool {
	return c.writing > 0 || slices.ContainsFunc(c.due, func(ch Change) bool { return ch.Step <= step })
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

// change takes a request. What has to be journalled takes effect when it is; until then no
// step behind it begins.
func (a *schedulerActor) change(ctx actor.Context, ch Change) {
	err := ch.Check()
	if err == nil && ch.Kind == Stop && ch.Step > 0 {
		err = a.stopsAt(ch.Step)
	}
	if err != nil {
		ctx.Send(a.peers.Metrics, &publish{ChangeEvent{Change: ch, Err: err}})
		return
	}
	now := a.state.Step
	if a.phase == Train {
		now++
	}
	// What names no step changes no figures, and need not happen again; a resumption only takes
	// back what would.
	needs := ch.Step > 0 || ch.Kind == SetRate
	if ch.Kind == Resume {
		needs = a.changes.pauses
	}
	if ch.Step = max(ch.Step, now); a.spec.WriteChange == nil || !needs {
		a.changed(ctx, ch)
		return
	}
	if a.changes.writing++; a.changes.writing == 1 || ch.Step < a.changes.hold {
		a.changes.hold = ch.Step
	}
	ctx.Request(a.peers.Metrics, &journal{a.header(), ch})
}

// stopsAt says why the run can't stop at the end of a step. Whoever names one wants the
// checkpoint of that step, no other.
func (a *schedulerActor) stopsAt(step int64) error {
	switch {
	case step <= a.state.Step:
		return fmt.Errorf("%w: step %d has ended, %d steps have; name a later one, or none to stop as soon as possible", ErrStep, step, a.state.Step)
	case step > a.spec.Steps:
		return fmt.Errorf("%w: it ends with step %d, before step %d", ErrStep, a.spec.Steps, step)
	}
	return nil
}

// changed puts a change into effect, or notes it for its step.
func (a *schedulerActor) changed(ctx actor.Context, ch Change) {
	a.changes.take(ch)
	if ch.Kind == Resume {
		a.pause = false
		if a.paused {
			a.paused = false
			ctx.Send(a.peers.Metrics, &publish{PauseEvent{a.state.Step, false}})
		}
	}
	ctx.Send(a.peers.Metrics, &publish{ChangeEvent{Change: ch}})
	a.takeDue()
}

// takeDue takes up what is due at the step that has ended, or is in progress.
func (a *schedulerActor) takeDue() {
	reached := a.state.Step
	if a.phase == Train {
		reached++
	}
	a.changes.due = slices.DeleteFunc(a.changes.due, func(ch Change) bool {
		if ch.Step > reached {
			return false
		}
		switch ch.Kind {
		case Pause:
			a.pause = true
		case Checkpoint:
			a.saveNow = true
		case Stop:
			a.stop = true
		}
		return true
	})
}
