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

// pass is an action of this rank, with its inputs and outputs.
type pass struct {
	scheduler.Action
	*side
	kind   scheduler.EdgeKind
	in     [][]*Transfer // by slot, the pieces; nil: not arrived
	data   *Data
	extent Extent               // extent of a forward's microbatch
	out    []outgoing           // outputs, until they are sent
	report func() stages.Report // report of a forward; nil: ask the stage
	times  *stages.PartTimes    // nil: its parts are not timed
}

// pass returns an action with the inputs that have arrived for it.
func (a *stageActor) pass(act scheduler.Action) pass {
	p := pass{Action: act}
	p.side, p.kind = a.edges.of(act)
	if n := len(p.ins); n > 0 {
		p.in = make([][]*Transfer, n)
		for slot := range p.in {
			p.in[slot] = make([]*Transfer, len(p.takes[slot].pieces))
			for part := range p.in[slot] {
				p.in[slot][part], _ = a.inbox[a.inputKey(&p, slot, part)].(*Transfer)
			}
		}
	}
	p.data, _ = a.inbox[a.dataKey(&p)].(*Data)
	return p
}

// inputKey returns the key of a piece of a pass's input.
func (a *stageActor) inputKey(p *pass, slot, part int) inboxKey {
	return inboxKey{a.order.Order, uint8(p.kind), p.Chunk, p.Microbatch, int32(slot), int32(part)}
}

// dataKey returns the key of its tokens.
func (a *stageActor) dataKey(p *pass) inboxKey {
	return inboxKey{a.order.Order, inData, p.Chunk, p.Microbatch, 0, 0}
}

// consume takes the inputs of a starting pass from the inbox.
func (a *stageActor) consume(p *pass) {
	for slot, pieces := range p.in {
		for part := range pieces {
			delete(a.inbox, a.inputKey(p, slot, part))
		}
	}
	delete(a.inbox, a.dataKey(p))
}

// act starts the next action of the order, or an overlapped pair, if it can, or ends the order. It
// reports whether anything was started or ended.
func (a *stageActor) act(ctx actor.Context) bool {
	if a.next == len(a.row) {
		return a.endOrder(ctx)
	}
	a.device.recording = a.device.recording[:0]
	for _, act := range a.row[a.next : a.next+scheduler.Width(a.row, a.next)] {
		p := a.pass(act)
		if wait := a.missing(&p); wait.Wait != event.WaitNothing {
			a.cell.store(wait)
			return false
		}
		a.device.recording = append(a.device.recording, p)
	}
	s := a.snap(event.Running)
	s.Action = a.device.recording[0].Action
	a.cell.store(s)
	a.next += len(a.device.recording)
	passes := a.device.recording
	for i := range passes {
		a.edges.spend(&passes[i])
		a.consume(&passes[i])
	}
	a.start(a.order.Table.OwnTurns(a.at[grid.Pipeline], a.next-len(passes)))
	// The device is working, so there is time for other things.
	for i := range passes {
		p := &passes[i]
		for _, n := range p.from {
			for _, rank := range n.ranks {
				ctx.Send(a.peers.Stages[rank], &Credit{Header: a.order.Header, Kind: p.kind, Edge: n.chunk, Skip: n.skip})
			}
		}
		if p.data != nil {
			a.asked[p.Chunk].ahead--
			a.ask(ctx, p.Chunk)
		}
	}
	return true
}

// missing returns what prevents an action from starting.
func (a *stageActor) missing(p *pass) event.Snapshot {
	s := a.snap(event.Waiting)
	s.Action = p.Action
	slot := slices.IndexFunc(p.in, func(pieces []*Transfer) bool { return slices.Contains(pieces, nil) })
	credit, lacks := a.edges.lacksCredit(p)
	switch {
	case slot >= 0:
		from, c := p.ins[slot].Chunk, &p.takes[slot]
		s.Wait, s.From = event.WaitActivation, a.spec.stageName(int(c.peer(c.pieces[slices.Index(p.in[slot], nil)])))
		s.Needs = scheduler.Action{Chunk: int32(from), Type: scheduler.F, Microbatch: p.Microbatch}
		if p.kind == scheduler.BackwardEdge {
			s.Wait, s.Needs.Type = event.WaitGradient, p.Type
		}
	case a.needsData(p.Action) && p.data == nil:
		s.Wait, s.From, s.Needs = event.WaitTokens, loaderName, p.Action
	case lacks:
		s.Wait, s.From = event.WaitCredit, a.spec.stageName(int(credit.ranks[0]))
		s.Needs = scheduler.Action{Chunk: credit.chunk, Type: p.Type, Microbatch: p.Microbatch}
		s.Need = 1
	case a.update.state == updateSpeculative && a.touchesGradients(p.Action):
		s.Wait, s.From = event.WaitDecision, schedulerName
	}
	return s
}

// start records an action, or a pair as one list, and submits it to the device. turns is the order of the parts of a pair; nil: the
// usual one.
func (a *stageActor) start(turns []int) {
	l := a.stream.NewList()
	if passes := a.device.recording; len(passes) == 1 {
		a.record(l, &passes[0])
	} else {
		stages.ActTogether(a.stage, turns, func() { a.record(l, &passes[0]) }, func() { a.record(l, &passes[1]) })
	}
	a.submitActions(l)
}

// record records an action, with the arrival of its inputs and the departure of its outputs.
func (a *stageActor) record(l *tensorops.List, p *pass) {
	var mb stages.Microbatch
	if p.Type == scheduler.F {
		mb = a.microbatch(p)
	}
	end := a.timeParts(l, p)
	in := a.edges.take(l, a.stage, p, &mb)
	a.edges.give(l, p, stages.Act(l, a.stage, p.Action, &mb, in...))
	end()
	if p.Type == scheduler.F {
		p.report = a.reportLater(p)
	}
	if p.data != nil { // a forward; a pair has only one
		a.device.batch = p.data.Batch
	}
}

// microbatch describes the microbatch of a forward, from its input or its data.
func (a *stageActor) microbatch(p *pass) stages.Microbatch {
	mb := stages.Microbatch{Step: a.order.Step, Index: int(p.Microbatch), Train: a.order.Phase == event.Train}
	if len(p.in) > 0 {
		p.extent = p.in[0][0].Extent
	}
	if p.data != nil {
		b := p.data.Batch
		p.extent, mb.Tokens, mb.Targets, mb.Fields = b.Extent, b.Tokens, b.Targets, b.Fields
		if len(b.Starts) > 0 {
			mb.Starts = b.Starts
		}
	}
	mb.Collect = a.spec.Collect && !mb.Train
	mb.FirstSequence, mb.Sequences, mb.Positions, mb.Extra = p.extent.FirstSequence, p.extent.Sequences, p.extent.Positions, p.extent.Extra
	if mb.Train && a.spec.Recompute != nil {
		mb.Recompute = a.spec.Recompute(a.at[grid.Pipeline], mb.Index)
	}
	mb.HeadLater = mb.Train && a.spec.HeadLater != nil && a.spec.HeadLater(a.order.Table.Microbatches, mb.Index)
	if mb.Train && a.alike {
		mb.Of = a.order.Table.Microbatches
	}
	return mb
}

// finishActions sends the results of completed actions.
func (a *stageActor) finishActions(ctx actor.Context, f *submission) {
	var parts [][]scheduler.PartTime
	if a.log != nil {
		parts = f.parts(a.device.finished)
	}
	for i := range f.passes {
		p := &f.passes[i]
		chunk, index := int(p.Chunk), int(p.Microbatch)
		if a.log != nil {
			a.log.add(event.ActionTime{Action: p.Action, Start: f.began, End: a.device.finished, Parts: parts[i]})
		}
		if err := a.stage.Verify(chunk); err != nil && a.update.state == updateSpeculative {
			if a.update.doubt == nil {
				a.update.doubt = err
			}
		} else if err != nil {
			a.failIn(ctx, f, err)
			return
		}
		if p.Type == scheduler.F {
			if err := a.reportLoss(p); err != nil {
				a.failIn(ctx, f, err)
				return
			}
		}
		if p.Type == scheduler.F && a.order.Phase == event.Eval {
			a.stage.Finish(chunk, index)
		}
		for i, o := range p.out {
			to := p.outs[o.slot]
			p.out[i].tensor = tensorops.Tensor{}
			ctx.Send(a.peers.Stages[o.rank], &Transfer{Header: a.order.Header, Kind: p.kind, To: int32(to.Chunk), Rank: o.rank,
				Microbatch: p.Microbatch, Slot: int32(to.Slot), Part: o.part, Extent: p.extent, Tensor: o.tensor})
		}
	}
}

// reportLoss records the loss of a completed forward, and the collected outputs.
func (a *stageActor) reportLoss(p *pass) error {
	chunk, index := int(p.Chunk), int(p.Microbatch)
	loss := Loss{Microbatch: index + a.order.First}
	// the other ranks of the groups have the same loss
	computes := a.stage.ComputesLoss(chunk) && a.at[grid.Tensor] == 0 && a.at[grid.Context] == 0
	if computes {
		if p.report != nil {
			loss.Report = p.report()
		} else {
			loss.Report = a.stage.Report(chunk, index)
		}
	}
	if n := len(loss.Metrics); n > stages.MaxMetrics {
		return fmt.Errorf("%w: the loss reports %d metrics for microbatch %d; the limit is %d", stages.ErrInput, n, index, stages.MaxMetrics)
	}
	if a.spec.Collect && a.order.Phase == event.Eval {
		loss.Outputs = a.stage.Outputs(chunk, index)
	}
	if computes || len(loss.Outputs) > 0 {
		a.losses = append(a.losses, loss)
	}
	return nil
}
