package actors

import (
	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry/event"
	"github.com/troupe-ml/troupe/tensorops"
)

// tiedParts are what an order makes and takes of tied gradients.
type tiedParts struct {
	parts   []stages.TiedGrad // this rank's, until they are sent
	awaited []inboxKey        // those that are to come from other ranks
}

// endOrder follows the last action of an order. After training, the uses of a
// tied weight exchange their gradients, and every gradient's norm is taken. It
// reports whether anything was started or ended.
func (a *stageActor) endOrder(ctx actor.Context) bool {
	switch {
	case a.order.Phase == event.Eval:
		a.report(ctx, nil, nil)
	case a.stage.WantsTied() == 0:
		a.norms()
	case a.tied.parts == nil:
		l := a.stream.NewList()
		others, places := a.tiedWith()
		a.tied.parts = a.stage.TiedGrads(l, places)
		for i, g := range a.tied.parts {
			a.tied.parts[i].Grad = a.edges.memory.send(l, g.Grad, others[g.To])
		}
		a.cell.store(a.snap(event.Reducing))
		a.submit(l, a.sendTied)
	default:
		return a.takeTied(ctx)
	}
	return true
}

// tiedWith are the ranks of other stages that use a tied weight, and their places in their tensor groups.
func (a *stageActor) tiedWith() (others []int, places []stages.TensorPlace) {
	for _, stage := range a.spec.TiedRanks {
		if stage == a.at[grid.Pipeline] {
			continue
		}
		group := a.spec.group(a.rank, stage)
		for i, r := range group {
			others, places = append(others, int(r)), append(places, stages.TensorPlace{Rank: i, Size: len(group)})
		}
	}
	return others, places
}

// sendTied sends this rank's part of the tied gradients to the ranks of the other uses,
// and notes what is to come from them.
func (a *stageActor) sendTied(ctx actor.Context) {
	others, _ := a.tiedWith()
	a.tied.awaited = a.tied.awaited[:0]
	for i, g := range a.tied.parts { // who needs a part of this rank's has a part that this rank needs
		other := others[g.To]
		a.tied.parts[i].Grad = tensorops.Tensor{}
		ctx.Send(a.peers.Stages[other], &TiedGradient{Header: a.order.Header, From: int32(a.rank), Grad: g})
		a.tied.awaited = append(a.tied.awaited, inboxKey{a.order.Order, inTied, int32(other), int32(g.Param), 0, 0})
	}
}

// takeTied takes the other ranks' parts when all have come, and norms follow; else the
// stage waits, and the answer is false.
func (a *stageActor) takeTied(ctx actor.Context) bool {
	for _, key := range a.tied.awaited {
		if _, ok := a.inbox[key].(*TiedGradient); !ok {
			s := a.snap(event.Waiting)
			s.Wait, s.From = event.WaitTied, a.spec.stageName(int(key.chunk))
			a.cell.store(s)
			return false
		}
	}
	a.norms()
	return true
}

// norms takes every gradient's norm, once the parts that other ranks have sent are added.
func (a *stageActor) norms() {
	l := a.stream.NewList()
	for _, key := range a.tied.awaited {
		g := a.inbox[key].(*TiedGradient).Grad
		delete(a.inbox, key)
		g.Grad = a.edges.memory.receive(l, g.Grad)
		if err := a.stage.TakeTied(g); err != nil {
			l.Fail(err)
			l.Free(g.Grad)
		}
	}
	a.tied.awaited = a.tied.awaited[:0]
	a.stage.GradNorms(l)
	weights := func() []stages.Norm { return nil }
	if s, ok := a.stage.(WeightNormer); ok && a.order.Norms {
		weights = s.WeightNorms(l)
	}
	a.cell.store(a.snap(event.Reducing))
	a.device.summing = true
	a.submit(l, func(ctx actor.Context) { a.report(ctx, a.stage.Norms(nil), weights()) })
}

// report ends the order.
func (a *stageActor) report(ctx actor.Context, norms, weights []stages.Norm) {
	m := &StageDone{Header: a.order.Header, Rank: a.rank, Losses: a.losses, Norms: norms, Weights: weights, Busy: a.device.busy}
	if a.log != nil {
		m.Trace = a.log.done()
	}
	ctx.Send(a.peers.Scheduler, m)
	wait := event.WaitOrder
	if a.order.Phase == event.Train {
		wait = event.WaitDecision
		a.update.state = updatePending
	}
	a.cell.store(event.Snapshot{Step: a.order.Step, Phase: a.order.Phase, Wait: wait, From: schedulerName})
	a.ended = a.order.Order
	a.tied.parts, a.order, a.row, a.device.summing = nil, nil, nil, false
	a.restartClock()
}

// applyDecision ends the step that the scheduler has decided: it updates the weights or
// drops the gradients. With post-validation the next order may have begun.
func (a *stageActor) applyDecision() {
	m := a.update.decision
	a.update.decision, a.step = nil, m.Step
	a.cell.store(event.Snapshot{Step: m.Step, Doing: event.Updating})
	l, doubt := a.stream.NewList(), a.update.doubt
	a.update.doubt = nil
	switch {
	case a.endSpeculation(l, m):
	case m.Skip:
		a.stage.ClearGrads(l)
	default:
		a.stage.Apply(l, m.Update)
	}
	a.submit(l, func(ctx actor.Context) {
		ctx.Send(a.peers.Scheduler, &Applied{Header: m.Header, Rank: a.rank})
		if a.order != nil {
			a.step = a.order.Step
			if doubt != nil { // the update stands, and so do the numbers
				a.fail(ctx, a.step, doubt)
			}
			return
		}
		a.cell.store(event.Snapshot{Step: m.Step, Wait: event.WaitOrder, From: schedulerName})
	})
}

// save copies the state to host memory and hands it to the checkpoint actor.
func (a *stageActor) save(m *SaveState) {
	a.step = m.Step
	l, copies := a.stream.NewList(), tensorops.Arena(nil)
	if !a.spec.inPlace(m.Step) {
		copies = a.local.copies.NewArena(a.cell.Load().Actor + ", checkpoint")
	}
	saved := a.stage.Save(l, copies)
	a.cell.store(event.Snapshot{Step: m.Step, Doing: event.Copying})
	a.submit(l, func(ctx actor.Context) {
		state := &StageState{Header: m.Header, Rank: a.rank, Saved: saved, Copies: copies}
		if m.Keep && a.spec.WriteOwn != nil {
			state = a.keepState(state)
		}
		ctx.Send(a.peers.Checkpoint, state)
		a.cell.store(event.Snapshot{Step: m.Step, Wait: event.WaitOrder, From: schedulerName})
	})
}

// drain frees what an ended run left here.
func (a *stageActor) drain() {
	for _, m := range a.inbox {
		m.release()
	}
	clear(a.inbox)
	for _, v := range append(a.device.completed, a.device.recording...) {
		for _, o := range v.out {
			o.tensor.Release()
		}
	}
	a.device.recording, a.device.completed = nil, nil
	for _, g := range a.tied.parts {
		g.Grad.Release()
	}
	a.tied.parts = nil
}
