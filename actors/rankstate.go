package actors

import (
	"fmt"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe/tensorops"
)

// A rank that was lost gets its weights and optimizer state from a rank that has the same ones, before the first order of an attempt
// that renews another.

// StateCopier is a Compute that can copy its tensors for a rank that has the same ones. Without an arena the result is the tensor itself,
// which the caller must not change or free.
type StateCopier interface {
	CopyState(l *tensorops.List, to tensorops.Arena, param, part string) (tensorops.Tensor, error)
}

// takeRead keeps a request until the stage has its weights and is at rest.
func (a *stageActor) takeRead(ctx actor.Context, m *ReadState) {
	switch {
	case a.failed || !a.runID.accepts(m.Header):
	case len(a.reads) >= limitReads:
		ctx.Send(m.ReplyTo, &RankState{Header: m.Header, Request: m.Request, Rank: a.rank, Shadow: m.Shadow,
			Err: fmt.Errorf("%d requests for the state of rank %d wait already, the limit", limitReads, a.rank)})
	default:
		a.reads = append(a.reads, m)
		a.advance(ctx)
	}
}

// sendState answers the first request.
func (a *stageActor) sendState(ctx actor.Context) {
	m := a.reads[0]
	a.reads = append(a.reads[:0], a.reads[1:]...)
	if m.Shadow != 0 {
		a.sendShadow(ctx, m)
		return
	}
	answer := &RankState{Header: m.Header, Request: m.Request, Rank: a.rank, lent: a.lends(m)}
	l := a.stream.NewList()
	if s, ok := a.stage.(StateCopier); ok {
		answer.Tensor, answer.Err = s.CopyState(l, a.copiesTo(answer), m.Param, m.Part)
	} else {
		answer.Err = fmt.Errorf("%w: rank %d uses the program's own %T, which has no CopyState", errTarget, a.rank, a.stage)
	}
	a.submit(l, func(ctx actor.Context) { ctx.Send(m.ReplyTo, answer) })
}

// lends reports whether a request for state is answered from where the numbers are, as it is to another process: they do not change before
// the first order, and that waits until the rank that needs them has them.
func (a *stageActor) lends(m *ReadState) bool {
	return a.edges.memory.addressable && m.ReplyTo.GetAddress() != a.self.GetAddress()
}

// copiesTo returns the memory for the copy that answers a request; nil: the answer lends the numbers.
func (a *stageActor) copiesTo(m *RankState) tensorops.Arena {
	if m.lent {
		return nil
	}
	return a.local.host
}
