package actors

import (
	"slices"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/tensorops"
)

// presumption is a stage's part of a step that has its reports to come in from other
// stages: whether the step is undecided, and whether its update is made already.
type presumption struct {
	undecided bool // this stage has reported, and the scheduler's word is out
	made      bool // the update is presumed: until the word comes, gradients stay
}

// presumes reports whether an order came ahead, so that the update of the step before
// it has to be presumed first.
func (a *stageActor) presumes(m *Order) bool {
	return m.Presumed != nil && a.presumption.undecided && !a.presumption.made
}

// presume makes the update that the next order goes by.
func (a *stageActor) presume(m *Order) {
	a.presumption.made = true
	a.cell.store(Snapshot{Step: a.step, Doing: Updating})
	l := a.stream.NewList()
	a.stage.Presume(l, *m.Presumed)
	a.submit(l, func(actor.Context) {})
}

// touchesGradients reports whether an action adds to the gradients, which are those of
// the step before as long as its update is presumed. A forward that computes the loss
// does: the head's weight gradient is made with it.
func (a *stageActor) touchesGradients(act scheduler.Action) bool {
	return act.Type != scheduler.F || a.stage.Loses(int(act.Stage))
}

// judge ends the step that the scheduler has decided: it updates the weights, drops the
// gradients, or lets the update stand that was presumed. The order ahead may have begun.
func (a *stageActor) judge() {
	m, made := a.verdict, a.presumption.made
	a.verdict, a.presumption = nil, presumption{}
	a.step = m.Step
	a.cell.store(Snapshot{Step: m.Step, Doing: Updating})
	l := a.stream.NewList()
	if m.Abandon != 0 {
		a.abandon(l, m.Abandon)
	}
	switch {
	case made && m.Kept:
		a.stage.Confirm(l)
	case made && m.Skip:
		a.stage.Revise(l, nil)
	case made:
		a.stage.Revise(l, &m.Update)
	case m.Skip:
		a.stage.ClearGrads(l)
	default:
		a.stage.Apply(l, m.Update)
	}
	a.submit(l, func(ctx actor.Context) {
		ctx.Send(a.wire.Scheduler, &Applied{Header: m.Header, Rank: a.rank})
		if a.order != nil {
			a.step = a.order.Step
			return
		}
		a.cell.store(Snapshot{Step: m.Step, Wait: WaitOrder, From: schedulerName})
	})
}

// abandon drops an order that came ahead, begun or not, with all that belongs to it.
// What comes for it later is released on arrival: it has ended.
func (a *stageActor) abandon(l *tensorops.List, order int64) {
	if a.order != nil {
		a.stage.Abandon(l)
		a.order, a.row, a.doing = nil, nil, a.doing[:0]
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
