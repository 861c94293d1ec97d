package actors

import (
	"slices"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry/event"
	"github.com/troupe-ml/troupe/tensorops"
)

// Post-validation ("Zero Bubble Pipeline Parallelism", arXiv 2401.10241, section 4): stages apply a
// predicted update, start the next step, and learn afterwards whether the update was right. First
// the scheduler actor's part, then a stage's.

// How a step's update was made, in a run with post-validation.
const (
	UpdateKept       = "kept"        // applied speculatively and confirmed
	UpdateRolledBack = "rolled_back" // applied speculatively, rolled back and applied again
	UpdateWaited     = "waited"      // applied after the decision
)

// countUpdate counts a step's update and returns its kind.
func countUpdate(u *event.Updates, ahead, kept bool) string {
	switch {
	case !ahead:
		u.Waited++
		return UpdateWaited
	case kept:
		u.Kept++
		return UpdateKept
	}
	u.RolledBack++
	return UpdateRolledBack
}

// experience remembers for which of the last steps the prediction was right.
type experience struct {
	missed [experienceSteps]bool
	steps  int
}

func (e *experience) add(right bool) {
	e.missed[e.steps%experienceSteps] = !right
	e.steps++
}

// shouldSpeculate reports whether speculation is worthwhile. A rollback costs more time than
// waiting, so it is not if more than half of the last predictions were wrong.
func (e *experience) shouldSpeculate() bool {
	misses := 0
	for _, m := range e.missed {
		if m {
			misses++
		}
	}
	return 2*misses <= experienceSteps
}

// speculate predicts the update of the current step: no clipping, all numbers finite, and the
// number of targets of the previous step. If the next step is known to follow, its order is sent at
// once.
func (a *schedulerActor) speculate(ctx actor.Context) {
	step := a.state.Step + 1
	a.predicted = stages.Update{Count: int(a.state.Updates) + 1, LR: a.rate(step), GradScale: stages.LossScale(a.targets)}
	// The record of this step will wait for its line, together with those that wait now.
	if !a.nothingBetween(step) || a.between != nil || !a.experience.shouldSpeculate() || a.recording+1 >= LimitRecords {
		return
	}
	predicted := a.predicted
	a.ahead = a.newOrder(event.Train, step+1)
	a.ahead.Speculative = &predicted
	a.issue(ctx, a.ahead)
}

// nothingBetween reports whether the next step follows this one directly, as far as is known now.
func (a *schedulerActor) nothingBetween(step int64) bool {
	saves := a.spec.WriteCheckpoint != nil && (a.saveNow || a.best || a.savesAt(step))
	return step < a.spec.Steps && !a.pause && !a.leaves() && !saves && !a.evaluatesAt(step) && !a.changes.between(step) && len(a.copies) == 0
}

// postValidate adds to a decision what happens to the order sent ahead. It returns that order if it
// continues, otherwise nil, and the kind of the update.
func (a *schedulerActor) postValidate(m *Apply) (next *Order, how string) {
	if !a.spec.PostValidate {
		return nil, ""
	}
	m.Kept = !m.Skip && m.Update == a.predicted
	a.experience.add(m.Kept)
	how = countUpdate(&a.updates, a.ahead != nil, m.Kept)
	next, a.ahead = a.ahead, nil
	if next != nil && (!m.Kept || !a.nothingBetween(a.state.Step)) {
		m.Abort, next = next.Order, nil
	}
	return next, how
}

// updateState is the state of the update of the step that a stage reported last.
type updateState uint8

const (
	updateSettled     updateState = iota // applied as decided
	updatePending                        // the stage has reported, but there is no decision yet
	updateSpeculative                    // applied before the decision; until then the gradients are kept
)

// stepUpdate is the update of the step that a stage reported last.
type stepUpdate struct {
	decision *Apply // applied as soon as the device is idle
	state    updateState
	doubt    error // error in the numbers of a speculative update; dropped if it is rolled back
	settled  int64 // the last step that ended with its decision
	broken   error // a list that changes weights has failed; nil: none has
	keep     bool  // the stage outlives the attempt
}

// mustSpeculate reports whether an order came ahead, so that the update of the previous step must
// first be applied speculatively.
func (a *stageActor) mustSpeculate(m *Order) bool {
	return m.Speculative != nil && a.update.state == updatePending
}

// speculate applies the update that the next order predicts.
func (a *stageActor) speculate(m *Order) {
	a.update.state = updateSpeculative
	a.cell.store(event.Snapshot{Step: a.step, Doing: event.Updating})
	l := a.stream.NewList()
	a.stage.SpeculativeApply(l, *m.Speculative)
	a.submitUpdate(l, func(actor.Context) {})
}

// touchesGradients reports whether an action adds to the gradients, which belong to the previous
// step until its decision. A forward that computes the loss does, because it also computes the
// head's weight gradient.
func (a *stageActor) touchesGradients(act scheduler.Action) bool {
	return act.Type != scheduler.F || a.stage.ComputesLoss(int(act.Chunk))
}

// endSpeculation aborts the order sent ahead if the decision says so, and commits or rolls back the
// speculative update. It reports whether there was one: if not, the update must still be applied.
func (a *stageActor) endSpeculation(l *tensorops.List, m *Apply) bool {
	applied := a.update.state == updateSpeculative
	a.update.state, a.update.settled = updateSettled, m.Step
	if m.Abort != 0 {
		a.abort(l, m.Abort)
	}
	switch {
	case !applied:
	case m.Kept:
		a.stage.Commit(l)
	case m.Skip:
		a.stage.Rollback(l, nil)
	default:
		a.stage.Rollback(l, &m.Update)
	}
	return applied
}

// abort drops an order that came ahead, started or not, with everything that belongs to it. Later
// messages for it are released on arrival, since it has ended.
func (a *stageActor) abort(l *tensorops.List, order int64) {
	if a.order != nil {
		a.stage.AbortMicrobatches(l)
		a.order, a.row, a.device.recording = nil, nil, a.device.recording[:0]
	}
	a.todo = slices.DeleteFunc(a.todo, func(m any) bool {
		o, ok := m.(*Order)
		return ok && o.Order == order
	})
	for key, m := range a.inbox {
		if key.order == order {
			m.release()
			delete(a.inbox, key)
		}
	}
	a.ended = order
}
