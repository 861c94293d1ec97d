package actors

import (
	"fmt"

	"github.com/asynkron/protoactor-go/actor"
)

// writeStep is a finished step; the sender is told when its line is written.
type writeStep struct {
	Header
	event StepEvent
	norms *Norms // nil: they are not logged
}

// publish is any other event.
type publish struct{ event Event }

// metricsActor writes metrics.jsonl and publishes events.
type metricsActor struct {
	part
}

func (a *metricsActor) Receive(ctx actor.Context) {
	defer a.rethrow(ctx)
	if a.failed {
		return // the file has no line behind one that is missing
	}
	switch m := ctx.Message().(type) {
	case *writeStep:
		a.cell.store(Snapshot{Step: m.Step, Doing: Writing})
		if a.spec.WriteRecord != nil {
			if err := a.spec.WriteRecord(m.event.Record); err != nil {
				a.fail(ctx, m.Step, fmt.Errorf("metrics of step %d: %w", m.event.Step, err))
				return
			}
		}
		if a.spec.WriteTrace != nil && m.event.Trace != nil {
			if err := a.spec.WriteTrace(int64(m.event.Step), m.event.Trace, m.event.Clocks); err != nil {
				a.fail(ctx, m.Step, err)
				return
			}
		}
		if m.norms != nil {
			if err := a.spec.WriteStats(*m.norms); err != nil {
				a.fail(ctx, m.Step, err)
				return
			}
		}
		ctx.Respond(&recorded{m.Header})
		a.publish(m.event)
		a.cell.store(Snapshot{Step: m.Step})
	case *journal:
		a.cell.store(Snapshot{Step: m.Step, Doing: Writing})
		if err := a.spec.WriteChange(m.request.Change); err != nil {
			a.fail(ctx, m.Step, fmt.Errorf("journal of changes: %w", err))
			return
		}
		ctx.Respond(&journalled{m.Header, m.request})
		a.cell.store(Snapshot{Step: m.Step})
	case *publish:
		a.publish(m.event)
	}
}

func (a *metricsActor) publish(e Event) {
	if a.spec.OnEvent != nil {
		a.spec.OnEvent(e)
	}
}
