package actors

import (
	"fmt"
	"slices"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry/event"
	"github.com/troupe-ml/troupe/tensorops"
)

// edges are the ways of an action's inputs and outputs.
type edges struct {
	kind      scheduler.EdgeKind
	ins, outs []stages.Port // of each tensor
	from, to  []way         // each chunk once
	// How each of the tensors comes, and leaves.
	takes, sends []crossing
}

func (a *stageActor) edges(act scheduler.Action) edges {
	kind := scheduler.ForwardEdge
	switch act.Type {
	case scheduler.F:
	case scheduler.I, scheduler.B:
		kind = scheduler.BackwardEdge
	default:
		return edges{}
	}
	w := a.waysOf[act.Chunk]
	return edges{kind, w.ins[kind], w.outs[kind], w.from[kind], w.to[kind], w.takes[kind], w.sends[kind]}
}

// visit is an action of this rank, with what it consumes and what it makes.
type visit struct {
	scheduler.Action
	edges
	in     [][]*Transfer // by slot, its pieces; nil: it has not come
	data   *Data
	extent Extent               // of a forward's microbatch
	out    []leaving            // until they are sent
	report func() stages.Report // of a forward; nil: the stage is asked
}

// visit is an action with what has come for it.
func (a *stageActor) visit(act scheduler.Action) visit {
	v, order := visit{Action: act, edges: a.edges(act)}, a.order.Order
	if n := len(v.ins); n > 0 {
		v.in = make([][]*Transfer, n)
		for slot := range v.in {
			v.in[slot] = make([]*Transfer, len(v.takes[slot].pieces))
			for part := range v.in[slot] {
				v.in[slot][part], _ = a.inbox[a.inputKey(&v, slot, part)].(*Transfer)
			}
		}
	}
	v.data, _ = a.inbox[inboxKey{order, inData, v.Chunk, v.Microbatch, 0, 0}].(*Data)
	return v
}

// inputKey is that of a piece of an action's input.
func (a *stageActor) inputKey(v *visit, slot, part int) inboxKey {
	return inboxKey{a.order.Order, uint8(v.kind), v.Chunk, v.Microbatch, int32(slot), int32(part)} //nolint:gosec // tensors of an edge
}

// act starts the next action of the order if it can, or an overlapped pair of them, or
// ends the order. It reports whether anything was started or ended.
func (a *stageActor) act(ctx actor.Context) bool {
	if a.next == len(a.row) {
		return a.endOrder(ctx)
	}
	a.doing = a.doing[:0]
	for _, act := range a.row[a.next : a.next+scheduler.Width(a.row, a.next)] {
		v := a.visit(act)
		if wait := a.missing(&v); wait.Wait != event.WaitNothing {
			a.cell.store(wait)
			return false
		}
		a.doing = append(a.doing, v)
	}
	s := a.snap(event.Running)
	s.Action = a.doing[0].Action
	a.cell.store(s)
	a.next += len(a.doing)
	for i := range a.doing {
		v := &a.doing[i]
		for _, w := range v.to {
			*a.creditsOf(v.kind, v.Chunk, w) -= len(w.ranks)
		}
		for slot, pieces := range v.in {
			for part := range pieces {
				delete(a.inbox, a.inputKey(v, slot, part))
			}
		}
		delete(a.inbox, inboxKey{a.order.Order, inData, v.Chunk, v.Microbatch, 0, 0})
	}
	doing := a.doing
	a.start()
	// The device works: now for the others.
	for i := range doing {
		v := &doing[i]
		for _, w := range v.from {
			for _, rank := range w.ranks {
				ctx.Send(a.peers.Stages[rank], &Credit{Header: a.order.Header, Kind: v.kind, Edge: w.chunk, Skip: w.skip})
			}
		}
		if v.data != nil {
			a.asked[v.Chunk].ahead--
			a.ask(ctx, v.Chunk)
		}
	}
	return true
}

// missing says what keeps an action from starting.
func (a *stageActor) missing(v *visit) event.Snapshot {
	s := a.snap(event.Waiting)
	s.Action = v.Action
	slot := slices.IndexFunc(v.in, func(pieces []*Transfer) bool { return slices.Contains(pieces, nil) })
	credit, lacks := a.lacksCredit(v)
	switch {
	case slot >= 0:
		from, c := v.ins[slot].Chunk, &v.takes[slot]
		s.Wait, s.From = event.WaitActivation, a.spec.stageName(int(c.peer(c.pieces[slices.Index(v.in[slot], nil)])))
		s.Needs = scheduler.Action{Chunk: int32(from), Type: scheduler.F, Microbatch: v.Microbatch}
		if v.kind == scheduler.BackwardEdge {
			s.Wait, s.Needs.Type = event.WaitGradient, v.Type
		}
	case a.needsData(v.Action) && v.data == nil:
		s.Wait, s.From, s.Needs = event.WaitTokens, loaderName, v.Action
	case lacks:
		s.Wait, s.From = event.WaitCredit, a.spec.stageName(int(credit.ranks[0]))
		s.Needs = scheduler.Action{Chunk: credit.chunk, Type: v.Type, Microbatch: v.Microbatch}
		s.Need = 1
	case a.update == updateSpeculative && a.touchesGradients(v.Action):
		s.Wait, s.From = event.WaitDecision, schedulerName
	}
	return s
}

// rankOf is the rank that has a chunk of this rank's pipeline.
func (a *stageActor) rankOf(chunk int32) int {
	return a.spec.beside(a.rank, a.order.Table.RankOf(int(chunk)))
}

func (a *stageActor) peer(chunk int32) *actor.PID { return a.peers.Stages[a.rankOf(chunk)] }

// start records what is to be done and hands it to the device, a pair as one list.
func (a *stageActor) start() {
	l := a.stream.NewList()
	for i := range a.doing {
		v := &a.doing[i]
		chunk, index := int(v.Chunk), int(v.Microbatch)
		var mb stages.Microbatch
		if v.Type == scheduler.F {
			mb = a.microbatch(v)
		}
		var in, out []tensorops.Tensor
		for slot := range v.in {
			in = append(in, a.arrive(l, v, slot, &mb))
		}
		switch v.Type {
		case scheduler.F:
			out = a.stage.Forward(l, chunk, &mb, in...)
		case scheduler.I:
			out = a.stage.InputGrad(l, chunk, index, in...)
		case scheduler.W:
			a.stage.WeightGrad(l, chunk, index)
		case scheduler.B:
			out = a.stage.Backward(l, chunk, index, in...)
		}
		if len(out) != len(v.outs) && l.Err() == nil {
			l.Fail(fmt.Errorf("%w: %v made %d tensors, and %d are to be sent", stages.ErrInput, v.Action, len(out), len(v.outs)))
		}
		for slot, t := range out {
			if slot < len(v.outs) {
				v.out = append(v.out, a.depart(l, slot, t, &v.sends[slot])...)
			} else {
				v.out = append(v.out, leaving{tensor: t}) // after an error
			}
		}
		if v.Type == scheduler.F {
			v.report = a.reportLater(v)
		}
		if v.data != nil { // a forward, of which a pair has one
			a.batch = v.data.Batch
		}
	}
	a.submitActions(l)
}

// microbatch describes what a forward works on, as its input says or its data.
func (a *stageActor) microbatch(v *visit) stages.Microbatch {
	mb := stages.Microbatch{Step: a.order.Step, Index: int(v.Microbatch), Train: a.order.Phase == event.Train}
	if len(v.in) > 0 {
		v.extent = v.in[0][0].Extent
	}
	if v.data != nil {
		b := v.data.Batch
		v.extent, mb.Tokens, mb.Targets, mb.Fields = b.Extent, b.Tokens, b.Targets, b.Fields
	}
	mb.Collect = a.spec.Collect && !mb.Train
	mb.FirstSequence, mb.Sequences, mb.Positions = v.extent.FirstSequence, v.extent.Sequences, v.extent.Positions
	if mb.Train && a.spec.Recompute != nil {
		mb.Recompute = a.spec.Recompute(a.at[grid.Pipeline], mb.Index)
	}
	mb.HeadLater = mb.Train && a.spec.HeadLater != nil && a.spec.HeadLater(a.order.Table.Microbatches, mb.Index)
	if mb.Train && a.alike {
		mb.Of = a.order.Table.Microbatches
	}
	return mb
}

// finishActions sends the results of what was started.
func (a *stageActor) finishActions(ctx actor.Context, f *flight) {
	for i := range f.doing {
		v := &f.doing[i]
		chunk, index := int(v.Chunk), int(v.Microbatch)
		if a.log != nil {
			a.log.add(event.ActionTime{Action: v.Action, Start: f.began, End: a.finished})
		}
		if err := a.stage.Verify(chunk); err != nil && a.update == updateSpeculative {
			if a.doubt == nil {
				a.doubt = err
			}
		} else if err != nil {
			a.failIn(ctx, f, err)
			return
		}
		if v.Type == scheduler.F {
			if err := a.reportLoss(v); err != nil {
				a.failIn(ctx, f, err)
				return
			}
		}
		if v.Type == scheduler.F && a.order.Phase == event.Eval {
			a.stage.Finish(chunk, index)
		}
		for i, o := range v.out {
			to := v.outs[o.slot]
			v.out[i].tensor = tensorops.Tensor{}
			ctx.Send(a.peers.Stages[o.rank], &Transfer{Header: a.order.Header, Kind: v.kind, To: int32(to.Chunk), Rank: o.rank, Microbatch: v.Microbatch, Slot: int32(to.Slot), Part: o.part, Extent: v.extent, Tensor: o.tensor})
		}
	}
}

// reportLoss notes what a forward that has completed says: the loss, and what is collected.
func (a *stageActor) reportLoss(v *visit) error {
	chunk, index := int(v.Chunk), int(v.Microbatch)
	loss := Loss{Microbatch: index + a.order.First}
	computes := a.stage.ComputesLoss(chunk) && a.at[grid.Tensor] == 0 && a.at[grid.Context] == 0 // whose others have the same
	if computes {
		if v.report != nil {
			loss.Report = v.report()
		} else {
			loss.Report = a.stage.Report(chunk, index)
		}
	}
	if n := len(loss.Metrics); n > stages.MaxMetrics {
		return fmt.Errorf("%w: the loss reports %d metrics of microbatch %d, of at most %d", stages.ErrInput, n, index, stages.MaxMetrics)
	}
	if a.spec.Collect && a.order.Phase == event.Eval {
		loss.Outputs = a.stage.Outputs(chunk, index)
	}
	if computes || len(loss.Outputs) > 0 {
		a.losses = append(a.losses, loss)
	}
	return nil
}
