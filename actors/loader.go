package actors

import (
	"fmt"

	"github.com/asynkron/protoactor-go/actor"
)

// loader answers requests for microbatches. It keeps no position: what a request
// gets follows from its step and microbatch, so a resumed run reads on exactly.
type loader struct {
	spec *Spec
	cell *Cell
	pool batchPool
	tape header
}

func (a *loader) Receive(ctx actor.Context) {
	defer rethrow()
	switch m := ctx.Message().(type) {
	case *DataRequest:
		if !a.tape.accepts(m.Header) {
			return
		}
		b, err := a.fill(m)
		if err != nil {
			ctx.Send(ctx.Parent(), &Failed{Header: m.Header, Actor: loaderName, Err: err})
			return
		}
		a.cell.store(Snapshot{Step: m.Step, Phase: m.Phase})
		ctx.Send(m.ReplyTo, &Data{Header: m.Header, Virtual: m.Virtual, Microbatch: m.Microbatch, Batch: b})
	case StatusRequest:
		ctx.Respond(a.cell.Load())
	}
}

// fill reads a microbatch.
func (a *loader) fill(m *DataRequest) (*Batch, error) {
	first := int(m.Microbatch) * a.spec.MicrobatchSize
	count, positions := a.spec.MicrobatchSize, a.spec.Context
	if m.Phase == Eval {
		count = min(count, a.spec.Data.EvalWindows()-first)
		positions = a.spec.Data.EvalLen(first)
	}
	b := a.pool.get(count * positions)
	b.FirstSequence, b.Sequences, b.Positions = first, count, positions
	for i := range count {
		tokens, targets := b.Tokens[i*positions:][:positions], b.Targets[i*positions:][:positions]
		var err error
		if m.Phase == Eval {
			err = a.spec.Data.EvalFill(first+i, tokens, targets)
		} else {
			err = a.spec.Data.Train(m.Step, first+i, tokens, targets)
		}
		if err != nil {
			b.Release()
			return nil, fmt.Errorf("%v data of step %d, sequence %d: %w", m.Phase, m.Step, first+i, err)
		}
	}
	if !m.Tokens {
		b.Tokens = b.Tokens[:0]
	}
	if !m.Targets {
		b.Targets = b.Targets[:0]
	}
	return b, nil
}
