package actors

import (
	"slices"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry/event"
	"github.com/troupe-ml/troupe/tensorops"
)

// tiedParts holds the tied gradients that an order sends and receives.
type tiedParts struct {
	parts   []stages.TiedGrad // parts of this rank, until they are sent
	awaited []inboxKey        // parts expected from other ranks
}

// endOrder handles the end of an order's actions. After training, the users of a tied weight
// exchange their gradients, and the norm of every gradient is computed. It reports whether anything
// was started or ended.
func (a *stageActor) endOrder(ctx actor.Context) bool {
	switch {
	case a.order.Phase == event.Eval:
		a.report(ctx, &StageDone{})
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

// tiedWith returns the ranks of other stages that use a tied weight, and their places in their
// tensor groups.
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

// sendTied sends this rank's part of the tied gradients to the ranks with the other uses, and notes
// what to expect from them.
func (a *stageActor) sendTied(ctx actor.Context) {
	others, _ := a.tiedWith()
	a.tied.awaited = a.tied.awaited[:0]
	for i, g := range a.tied.parts { // a rank that needs a part of this rank has a part that this rank needs
		other := others[g.To]
		a.tied.parts[i].Grad = tensorops.Tensor{}
		ctx.Send(a.peers.Stages[other], &TiedGradient{Header: a.order.Header, From: int32(a.rank), Grad: g})
		a.tied.awaited = append(a.tied.awaited, inboxKey{a.order.Order, inTied, int32(other), int32(g.Param), 0, 0})
	}
}

// takeTied takes the other ranks' parts if all have arrived, and returns true: the norms follow.
// Otherwise the stage waits.
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

// norms computes every gradient's norm, after the parts from other ranks were added.
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
	routers := func() []stages.RouterStats { return nil }
	if s, ok := a.stage.(RouterReporter); ok {
		routers = s.RouterStats(l)
	}
	a.cell.store(a.snap(event.Reducing))
	a.device.summing = true
	a.submit(l, func(ctx actor.Context) {
		h := a.order.Header
		a.report(ctx, &StageDone{Norms: a.stage.Norms(nil), Weights: weights(), Routers: routers()})
		if err := a.sendGradients(ctx, h); err != nil {
			a.fail(ctx, a.step, err)
		}
	})
}

// report ends the order. It adds what every order has.
func (a *stageActor) report(ctx actor.Context, m *StageDone) {
	m.Header, m.Rank, m.Losses, m.Busy = a.order.Header, a.rank, a.losses, a.device.busy
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

// applyDecision ends the step that the scheduler has decided: it updates the weights or drops the
// gradients. With post-validation the next order may have started.
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
	a.submitUpdate(l, func(ctx actor.Context) {
		ctx.Send(a.peers.Scheduler, &Applied{Header: m.Header, Rank: a.rank})
		if a.order != nil {
			a.step = a.order.Step
			if doubt != nil { // the update is confirmed, and so are its numbers
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
	saved := a.saved(l, copies, m.Weights)
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

// saved copies the state or, with weights, the weights alone.
func (a *stageActor) saved(l *tensorops.List, copies tensorops.Arena, weights bool) []stages.Saved {
	if s, ok := a.stage.(WeightSaver); ok && weights {
		return s.SaveWeights(l, copies)
	}
	saved := a.stage.Save(l, copies)
	if weights {
		saved = slices.DeleteFunc(saved, func(v stages.Saved) bool { return v.Part != "" })
	}
	return saved
}

// drain frees what an ended run left in this actor.
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
