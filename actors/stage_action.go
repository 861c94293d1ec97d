package actors

import (
	"fmt"
	"slices"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// edges are the ways of an action's inputs and outputs.
type edges struct {
	kind      scheduler.EdgeKind
	ins, outs []stages.Port // of each tensor
	from, to  []way         // each chunk once
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
	return edges{kind, w.ins[kind], w.outs[kind], w.from[kind], w.to[kind]}
}

// visit is an action of this rank, with what it consumes and what it makes.
type visit struct {
	scheduler.Action
	edges
	in     []*Transfer // by slot; nil: it has not come
	data   *Data
	extent Extent             // of a forward's microbatch
	out    []tensorops.Tensor // until they are sent
}

// visit is an action with what has come for it.
func (a *stageActor) visit(act scheduler.Action) visit {
	v, order := visit{Action: act, edges: a.edges(act)}, a.order.Order
	if n := len(v.ins); n > 0 {
		v.in = make([]*Transfer, n)
		for slot := range v.in {
			v.in[slot], _ = a.inbox[inboxKey{order, uint8(v.kind), v.Chunk, v.Microbatch, int32(slot)}].(*Transfer)
		}
	}
	v.data, _ = a.inbox[inboxKey{order, inData, v.Chunk, v.Microbatch, 0}].(*Data)
	return v
}

// act starts the next action of the order if it can, or an overlapped pair of them, or
// ends the order. It reports whether anything was started or ended.
func (a *stageActor) act(ctx actor.Context) bool {
	if a.next == len(a.row) {
		return a.endOrder(ctx)
	}
	a.doing = a.doing[:0]
	acts := a.choose()
	if len(acts) == 0 {
		a.cell.store(a.blocked())
		return false
	}
	for _, act := range acts {
		v := a.visit(act)
		if wait := a.missing(&v); wait.Wait != WaitNothing {
			a.cell.store(wait)
			return false
		}
		a.doing = append(a.doing, v)
	}
	s := a.snap(Running)
	s.Action = a.doing[0].Action
	a.cell.store(s)
	a.next += len(a.doing)
	for i := range a.doing {
		v := &a.doing[i]
		if a.dynamic.dispatcher != nil {
			a.dynamic.dispatcher.Begin(v.Action)
		}
		for _, w := range v.to {
			*a.creditsOf(v.kind, v.Chunk, w)--
		}
		for slot := range v.in {
			delete(a.inbox, inboxKey{a.order.Order, uint8(v.kind), v.Chunk, v.Microbatch, int32(slot)})
		}
		delete(a.inbox, inboxKey{a.order.Order, inData, v.Chunk, v.Microbatch, 0})
	}
	a.start()
	// The device works: now for the others.
	for i := range a.doing {
		v := &a.doing[i]
		a.announce(ctx, v)
		for _, w := range v.from {
			ctx.Send(a.peer(w.chunk), &Credit{Header: a.order.Header, Kind: v.kind, Edge: w.chunk, Skip: w.skip})
		}
		if v.data != nil {
			a.asked[v.Chunk].ahead--
			a.ask(ctx, v.Chunk)
		}
	}
	return true
}

// missing says what keeps an action from starting.
func (a *stageActor) missing(v *visit) Snapshot {
	s := a.snap(Waiting)
	s.Action = v.Action
	slot := slices.Index(v.in, nil)
	credit, lacks := a.lacksCredit(v)
	switch {
	case slot >= 0:
		from := v.ins[slot].Chunk
		s.Wait, s.From = WaitActivation, stageName(a.order.Table.RankOf(from))
		s.Needs = scheduler.Action{Chunk: int32(from), Type: scheduler.F, Microbatch: v.Microbatch}
		if v.kind == scheduler.BackwardEdge {
			s.Wait, s.Needs.Type = WaitGradient, v.Type
		}
	case a.needsData(v.Action) && v.data == nil:
		s.Wait, s.From, s.Needs = WaitTokens, loaderName, v.Action
	case lacks:
		s.Wait, s.From = WaitCredit, stageName(a.order.Table.RankOf(int(credit.chunk)))
		s.Needs = scheduler.Action{Chunk: credit.chunk, Type: v.Type, Microbatch: v.Microbatch}
		s.Need = 1
	case a.update == updateSpeculative && a.touchesGradients(v.Action):
		s.Wait, s.From = WaitDecision, schedulerName
	}
	return s
}

func (a *stageActor) peer(chunk int32) *actor.PID {
	return a.peers.Stages[a.order.Table.RankOf(int(chunk))]
}

// start records what is to be done and hands it to the device, a pair as one list.
func (a *stageActor) start() {
	l := a.stream.NewList()
	for i := range a.doing {
		v := &a.doing[i]
		chunk, index := int(v.Chunk), int(v.Microbatch)
		var in []tensorops.Tensor
		for _, t := range v.in {
			in = append(in, a.stageIn(l, t.Tensor))
		}
		switch v.Type {
		case scheduler.F:
			mb := a.microbatch(v)
			v.out = a.stage.Forward(l, chunk, &mb, in...)
		case scheduler.I:
			v.out = a.stage.InputGrad(l, chunk, index, in...)
		case scheduler.W:
			a.stage.WeightGrad(l, chunk, index)
		case scheduler.B:
			v.out = a.stage.Backward(l, chunk, index, in...)
		}
		if len(v.out) != len(v.outs) && l.Err() == nil {
			l.Fail(fmt.Errorf("%w: %v made %d tensors, and %d are to be sent", stages.ErrInput, v.Action, len(v.out), len(v.outs)))
		}
		for i, t := range v.out[:min(len(v.out), len(v.outs))] {
			v.out[i] = a.stageOut(l, t, a.order.Table.RankOf(v.outs[i].Chunk))
		}
		if v.data != nil { // a forward, of which a pair has one
			a.batch = v.data.Batch
		}
	}
	a.submit(l, a.finishActions)
}

// microbatch describes what a forward works on, as its input says or its data.
func (a *stageActor) microbatch(v *visit) stages.Microbatch {
	mb := stages.Microbatch{Step: a.order.Step, Index: int(v.Microbatch), Train: a.order.Phase == Train}
	if len(v.in) > 0 {
		v.extent = v.in[0].Extent
	}
	if v.data != nil {
		b := v.data.Batch
		v.extent, mb.Tokens, mb.Targets, mb.Fields = b.Extent, b.Tokens, b.Targets, b.Fields
	}
	mb.Collect = a.spec.Collect && !mb.Train
	mb.FirstSequence, mb.Sequences, mb.Positions = v.extent.FirstSequence, v.extent.Sequences, v.extent.Positions
	if mb.Train && a.spec.Recompute != nil {
		mb.Recompute = a.spec.Recompute(a.rank, mb.Index)
	}
	mb.HeadLater = mb.Train && a.spec.HeadLater != nil && a.spec.HeadLater(mb.Index)
	return mb
}

// finishActions sends the results of what was started.
func (a *stageActor) finishActions(ctx actor.Context) {
	for i := range a.doing {
		v := &a.doing[i]
		chunk, index := int(v.Chunk), int(v.Microbatch)
		if a.dynamic.dispatcher != nil {
			a.dynamic.dispatcher.End(v.Action)
		}
		if a.order.Trace {
			a.trace = append(a.trace, ActionTime{v.Action, a.began, a.finished})
		}
		if err := a.stage.Verify(chunk); err != nil && a.update == updateSpeculative {
			if a.doubt == nil {
				a.doubt = err
			}
		} else if err != nil {
			a.fail(ctx, a.step, err)
			return
		}
		if v.Type == scheduler.F {
			if err := a.reportLoss(chunk, index); err != nil {
				a.fail(ctx, a.step, err)
				return
			}
		}
		if v.Type == scheduler.F && a.order.Phase == Eval {
			a.stage.Finish(chunk, index)
		}
		for slot, t := range v.out {
			to := v.outs[slot]
			v.out[slot] = tensorops.Tensor{}
			ctx.Send(a.peer(int32(to.Chunk)), &Transfer{Header: a.order.Header, Kind: v.kind, To: int32(to.Chunk), Microbatch: v.Microbatch, Slot: int32(to.Slot), Extent: v.extent, Tensor: t})
		}
	}
	a.doing = a.doing[:0]
}

// reportLoss notes what a forward that has completed says: the loss, and what is collected.
func (a *stageActor) reportLoss(chunk, index int) error {
	loss := Loss{Microbatch: index}
	computes := a.stage.ComputesLoss(chunk)
	if computes {
		loss.Report = a.stage.Report(chunk, index)
	}
	if n := len(loss.Metrics); n > stages.MaxMetrics {
		return fmt.Errorf("%w: the loss reports %d metrics of microbatch %d, of at most %d", stages.ErrInput, n, index, stages.MaxMetrics)
	}
	if a.spec.Collect && a.order.Phase == Eval {
		loss.Outputs = a.stage.Outputs(chunk, index)
	}
	if computes || len(loss.Outputs) > 0 {
		a.losses = append(a.losses, loss)
	}
	return nil
}
