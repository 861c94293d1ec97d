package actors

import (
	"fmt"

	"github.com/asynkron/protoactor-go/actor"
)

// writeStep is a finished step; the sender is told when its line is written.
type writeStep struct {
	Header
	event StepEvent
}

// publish is any other event.
type publish struct{ event Event }

// metricsActor writes metrics.jsonl and publishes events.
type metricsActor struct {
	spec *Spec
	cell *Cell
}

func (a *metricsActor) Receive(ctx actor.Context) {
	defer rethrow()
	switch m := ctx.Message().(type) {
	case *writeStep:
		if a.spec.WriteRecord != nil {
			if err := a.spec.WriteRecord(m.event.Record); err != nil {
				ctx.Send(ctx.Parent(), &Failed{Header: m.Header, Actor: metricsName, Err: fmt.Errorf("metrics of step %d: %w", m.event.Step, err)})
				return
			}
		}
		a.cell.store(Snapshot{Step: int64(m.event.Step)})
		ctx.Respond(&recorded{m.Header})
		a.publish(m.event)
	case *publish:
		a.publish(m.event)
	case StatusRequest:
		ctx.Respond(a.cell.Load())
	}
}

func (a *metricsActor) publish(e Event) {
	if a.spec.OnEvent != nil {
		a.spec.OnEvent(e)
	}
}
