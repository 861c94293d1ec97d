package actors

import (
	"github.com/troupe-ml/troupe/internal/run/trainstate"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// carried is the part of the scheduler actor's state that passes on to the next attempt, if that adopts the stages.
type carried struct {
	state  trainstate.State
	target Target // the last decided step; without one, the step from which the attempt has started
	orders int64  // sent so far

	targets float64 // number of targets of the last step
	// With post-validation: the record of predictions so far.
	experience experience
	updates    event.Updates

	last       *event.StepEvent // event of the step that ended, until its validation has finished
	logged     *Norms           // norms of that step; nil: not logged
	fastest    float64          // tokens a second of the fastest step
	evaled     int64            // step of the last validation, −1: none
	saved      int64            // step of the last checkpoint started, −1: none
	best       bool             // the last validation had the best loss
	diverging  bool             // its loss was above that before training
	changes    changes
	paused     bool
	saves      saves
	saveMissed bool // a checkpoint was due after a skipped step, or was not finished; see saveDue
}

// Carry is what an attempt passes on to one that adopts its stages: the progress of the run up to the last decided step. Open requests are
// not in it: the next attempt needs them in Spec.Requests, and the journal in Spec.Changes.
type Carry struct {
	carried
	finished *Saved // a checkpoint that was finished after the scheduler had ended; nil: none
	unready  []int  // ranks that had not reported ready
}

// State returns the state of the run after the last decided step.
func (c *Carry) State() trainstate.State { return c.state }

// Target returns what the stages continue from.
func (c *Carry) Target() Target { return c.target }

// Unready returns the ranks whose stages had not reported that they have their weights. Those that were to get them from others have not
// kept any, though their processes may be there.
func (c *Carry) Unready() []int { return c.unready }

// Record returns the event of the last decided step if its line is not written, because its validation is missing; nil: the line is
// written.
func (c *Carry) Record() *event.StepEvent { return c.last }

// Settled reports whether nothing is due after the last decided step but its line: no validation, in a run with these settings.
func (c *Carry) Settled(s *Spec) bool {
	step := c.state.Step
	return step > 0 && step < s.Steps && (s.EvalTable == nil || s.EvalEvery == 0 || step%s.EvalEvery != 0 || c.evaled == step)
}

// carry returns what the scheduler passes on; nil: some stages have never had their weights. An attempt that has itself adopted stages
// passes on what it got, with the stages that have adopted.
func (a *schedulerActor) carry() *Carry {
	if !a.ready.all() && a.spec.Carry == nil {
		return nil
	}
	c := &Carry{carried: a.carried}
	for rank, came := range a.ready.came {
		if !came {
			c.unready = append(c.unready, rank)
		}
	}
	if a.savingNow { // the stages have not copied all of what was the best
		c.best = c.best || c.isBest(a.spec)
	}
	return c
}

func (c *carried) isBest(s *Spec) bool {
	return c.state.BestStep == c.state.Step && c.state.Step > 0 && !s.NoBest
}

// settle takes the newest checkpoint that the attempt has finished; nil: none. One that was begun and not finished is due again.
func (c *Carry) settle(s *Spec, newest *Saved) {
	done := c.saves.written
	if newest != nil && newest.Step > done {
		c.finished, done = newest, newest.Step
		if newest.Best && c.state.BestStep == newest.Step {
			c.best = false
		}
	}
	if c.saved > done {
		c.saveMissed, c.best = true, c.best || c.isBest(s)
	}
	if c.saved = done; done == 0 {
		c.saved = -1
	}
	writing := c.saves.writing
	if c.saves = (saves{written: c.saves.written}); c.finished != nil {
		c.saves.writing = map[int64][]uint64{done: writing[done]}
	}
	c.changes.writing, c.changes.resumes, c.changes.held = 0, 0, nil
}

// resume continues where the last attempt has ended.
func (a *schedulerActor) resume(c *Carry) {
	journal := a.changes
	a.carried = c.carried
	if a.spec.WriteChange != nil {
		a.changes = journal
	}
	if c.finished != nil {
		a.saving++ // its end follows
	}
}
