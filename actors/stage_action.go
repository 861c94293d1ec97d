package actors

import (
	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// edges are the ways of an action's input and output.
type edges struct {
	kind    scheduler.EdgeKind
	in, out bool
	from    int32 // chunk that the input comes from
	to      int32 // chunk that the output goes to
}

func (a *stageActor) edges(act scheduler.Action) edges {
	last := int32(a.order.Table.NumChunks - 1)
	switch act.Type {
	case scheduler.F:
		return edges{scheduler.ForwardEdge, act.Chunk > 0, act.Chunk < last, act.Chunk - 1, act.Chunk + 1}
	case scheduler.I, scheduler.B:
		return edges{scheduler.BackwardEdge, act.Chunk < last, act.Chunk > 0, act.Chunk + 1, act.Chunk - 1}
	}
	return edges{}
}

// visit is an action of this rank, with what it consumes and what it makes.
type visit struct {
	scheduler.Action
	edges
	in     *Transfer
	data   *Data
	extent Extent           // of a forward's microbatch
	out    tensorops.Tensor // until it is sent
}

// inputs are the inbox keys of what the visit consumes.
func (v *visit) inputs(order int64) (in, data inboxKey) {
	return inboxKey{order, uint8(v.kind), v.Chunk, v.Microbatch}, inboxKey{order, inData, v.Chunk, v.Microbatch}
}

// visit is an action with what has come for it.
func (a *stageActor) visit(act scheduler.Action) visit {
	v := visit{Action: act, edges: a.edges(act)}
	in, data := v.inputs(a.order.Order)
	if v.edges.in {
		v.in, _ = a.inbox[in].(*Transfer)
	}
	v.data, _ = a.inbox[data].(*Data)
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
		if v.edges.out {
			a.credit(v.kind, v.Chunk, -1)
		}
		in, data := v.inputs(a.order.Order)
		delete(a.inbox, in)
		delete(a.inbox, data)
	}
	a.start()
	// The device works: now for the others.
	for i := range a.doing {
		v := &a.doing[i]
		a.announce(ctx, v)
		if v.in != nil {
			ctx.Send(a.peer(v.from), &Credit{Header: a.order.Header, Kind: v.kind, Edge: v.from})
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
	switch {
	case v.edges.in && v.in == nil:
		s.Wait, s.From = WaitActivation, stageName(a.order.Table.RankOf(int(v.from)))
		s.Needs = scheduler.Action{Chunk: v.from, Type: scheduler.F, Microbatch: v.Microbatch}
		if v.kind == scheduler.BackwardEdge {
			s.Wait, s.Needs.Type = WaitGradient, v.Type
		}
	case a.needsData(v.Action) && v.data == nil:
		s.Wait, s.From, s.Needs = WaitTokens, loaderName, v.Action
	case v.edges.out && a.credits.Of(v.kind, int(v.Chunk)) <= 0:
		s.Wait, s.From = WaitCredit, stageName(a.order.Table.RankOf(int(v.to)))
		s.Needs = scheduler.Action{Chunk: v.to, Type: v.Type, Microbatch: v.Microbatch}
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
		var x tensorops.Tensor
		if v.in != nil {
			x = a.stageIn(l, v.in.Tensor)
		}
		switch v.Type {
		case scheduler.F:
			mb := a.microbatch(v)
			v.out = a.stage.Forward(l, chunk, &mb, x)
		case scheduler.I:
			v.out = a.stage.InputGrad(l, chunk, index, x)
		case scheduler.W:
			a.stage.WeightGrad(l, chunk, index)
		case scheduler.B:
			v.out = a.stage.Backward(l, chunk, index, x)
		}
		if v.edges.out {
			v.out = a.stageOut(l, v.out, a.order.Table.RankOf(int(v.to)))
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
	if v.in != nil {
		v.extent = v.in.Extent
	}
	if v.data != nil {
		b := v.data.Batch
		v.extent, mb.Tokens, mb.Targets = b.Extent, b.Tokens, b.Targets
	}
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
		if v.Type == scheduler.F && a.stage.ComputesLoss(chunk) {
			sum, targets := a.stage.Loss(chunk, index)
			a.losses = append(a.losses, Loss{Microbatch: index, Sum: sum, Targets: targets, MTP: a.stage.MTPLoss(chunk, index)})
		}
		if v.Type == scheduler.F && a.order.Phase == Eval {
			a.stage.Finish(chunk, index)
		}
		if v.edges.out {
			out := v.out
			v.out = tensorops.Tensor{}
			ctx.Send(a.peer(v.to), &Transfer{Header: a.order.Header, Kind: v.kind, To: v.to, Microbatch: v.Microbatch, Extent: v.extent, Tensor: out})
		}
	}
	a.doing = a.doing[:0]
}
