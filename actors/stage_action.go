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
	from    int32 // virtual stage that the input comes from
	to      int32 // virtual stage that the output goes to
}

func (a *stageActor) edges(act scheduler.Action) edges {
	last := int32(a.order.Table.NumStages - 1)
	switch act.Type {
	case scheduler.F:
		return edges{scheduler.ForwardEdge, act.Stage > 0, act.Stage < last, act.Stage - 1, act.Stage + 1}
	case scheduler.I, scheduler.B:
		return edges{scheduler.BackwardEdge, act.Stage < last, act.Stage > 0, act.Stage + 1, act.Stage - 1}
	}
	return edges{}
}

// act starts the next action of the order if it can, or ends the order. It
// reports whether anything was started or ended.
func (a *stageActor) act(ctx actor.Context) bool {
	if a.next == len(a.row) {
		return a.endOrder(ctx)
	}
	act := a.row[a.next]
	e := a.edges(act)
	var in *Transfer
	inKey := inboxKey{a.order.Order, uint8(e.kind), act.Stage, act.Microbatch}
	if e.in {
		in, _ = a.inbox[inKey].(*Transfer)
	}
	dataKey := inboxKey{a.order.Order, inData, act.Stage, act.Microbatch}
	data, _ := a.inbox[dataKey].(*Data)
	if wait := a.missing(act, e, in, data); wait.Wait != WaitNothing {
		a.cell.store(wait)
		return false
	}
	a.cell.store(a.snap(Running))
	a.next++
	if e.out {
		a.credit(e.kind, act.Stage, -1)
	}
	delete(a.inbox, inKey)
	delete(a.inbox, dataKey)
	a.start(act, e, in, data)
	// The device works: now for the others.
	if in != nil {
		ctx.Send(a.peer(e.from), &Credit{Header: a.order.Header, Kind: e.kind, Edge: e.from})
	}
	if data != nil {
		a.ahead--
		a.ask(ctx)
	}
	return true
}

// missing says what keeps an action from starting.
func (a *stageActor) missing(act scheduler.Action, e edges, in *Transfer, data *Data) Snapshot {
	s := a.snap(Waiting)
	switch {
	case e.in && in == nil:
		s.Wait, s.From = WaitActivation, stageName(a.order.Table.RankOf(int(e.from)))
		s.Needs = scheduler.Action{Stage: e.from, Type: scheduler.F, Microbatch: act.Microbatch}
		if e.kind == scheduler.BackwardEdge {
			s.Wait, s.Needs.Type = WaitGradient, act.Type
		}
	case a.needsData(act) && data == nil:
		s.Wait, s.From, s.Needs = WaitTokens, loaderName, act
	case e.out && a.credits.Of(e.kind, int(act.Stage)) <= 0:
		s.Wait, s.From = WaitCredit, stageName(a.order.Table.RankOf(int(e.to)))
		s.Needs = scheduler.Action{Stage: e.to, Type: act.Type, Microbatch: act.Microbatch}
		s.Need = 1
	}
	return s
}

func (a *stageActor) peer(virtual int32) *actor.PID {
	return a.wire.Stages[a.order.Table.RankOf(int(virtual))]
}

// start records an action and hands it to the device.
func (a *stageActor) start(act scheduler.Action, e edges, in *Transfer, data *Data) {
	l := a.stream.NewList()
	v, index := int(act.Stage), int(act.Microbatch)
	var x tensorops.Tensor
	if in != nil {
		x = in.Tensor
	}
	first := 0
	switch act.Type {
	case scheduler.F:
		mb := a.microbatch(act, in, data)
		first = mb.FirstSequence
		a.out = a.stage.Forward(l, v, &mb, x)
	case scheduler.I:
		a.out = a.stage.InputGrad(l, v, index, x)
	case scheduler.W:
		a.stage.WeightGrad(l, v, index)
	case scheduler.B:
		a.out = a.stage.Backward(l, v, index, x)
	}
	if data != nil {
		a.batch = data.Batch
	}
	a.submit(l, func(ctx actor.Context) { a.finishAction(ctx, act, e, first) })
}

// microbatch describes what a forward works on: from the data where the stage
// has some, else from the activation's own shape.
func (a *stageActor) microbatch(act scheduler.Action, in *Transfer, data *Data) stages.Microbatch {
	mb := stages.Microbatch{Step: a.order.Step, Index: int(act.Microbatch), Train: a.order.Phase == Train}
	if in != nil {
		mb.FirstSequence = in.FirstSequence
		if in.Tensor.Rank() >= 2 {
			mb.Sequences, mb.Positions = in.Tensor.Dim(0), in.Tensor.Dim(1)
		}
	}
	if data != nil {
		b := data.Batch
		mb.FirstSequence, mb.Sequences, mb.Positions, mb.Tokens, mb.Targets = b.FirstSequence, b.Sequences, b.Positions, b.Tokens, b.Targets
		var targets float64
		for _, t := range b.Targets {
			if t != tensorops.IgnoreTarget {
				targets++
			}
		}
		mb.LossScale = a.spec.Reduce.Scale(targets, a.order.Table.Microbatches)
	}
	if mb.Train && a.spec.Recompute != nil {
		mb.Recompute = a.spec.Recompute(a.rank, mb.Index)
	}
	return mb
}

// finishAction sends an action's results.
func (a *stageActor) finishAction(ctx actor.Context, act scheduler.Action, e edges, first int) {
	v, index := int(act.Stage), int(act.Microbatch)
	if a.order.Trace {
		a.trace = append(a.trace, ActionTime{act, a.began, a.finished})
	}
	if act.Type == scheduler.F && a.stage.Loses(v) {
		sum, targets := a.stage.Loss(v, index)
		a.losses = append(a.losses, Loss{Microbatch: index, Sum: sum, Targets: targets})
	}
	if act.Type == scheduler.F && a.order.Phase == Eval {
		a.stage.Finish(v, index)
	}
	if e.out {
		out := a.out
		a.out = tensorops.Tensor{}
		ctx.Send(a.peer(e.to), &Transfer{Header: a.order.Header, Kind: e.kind, To: e.to, Microbatch: act.Microbatch, FirstSequence: first, Tensor: out})
	}
}
