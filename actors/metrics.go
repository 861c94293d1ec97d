package actors

import (
	"fmt"
	"time"

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
			if err := a.write("metrics.jsonl", func() error { return a.spec.WriteRecord(m.event.Record) }); err != nil {
				a.fail(ctx, m.Step, fmt.Errorf("metrics of step %d: %w", m.event.Step, err))
				return
			}
		}
		if a.spec.WriteTrace != nil && m.event.Trace != nil {
			if err := a.write("trace.jsonl", func() error { return a.spec.WriteTrace(int64(m.event.Step), m.event.Trace, m.event.Clocks) }); err != nil {
				a.fail(ctx, m.Step, err)
				return
			}
		}
		if m.norms != nil {
			if err := a.write("stats.jsonl", func() error { return a.spec.WriteStats(*m.norms) }); err != nil {
				a.fail(ctx, m.Step, err)
				return
			}
		}
		ctx.Respond(&recorded{m.Header})
		a.publish(m.event)
		a.cell.store(Snapshot{Step: m.Step})
	case *journal:
		a.cell.store(Snapshot{Step: m.Step, Doing: Writing})
		if err := a.write("changes.jsonl", func() error { return a.spec.WriteChange(m.request.Change) }); err != nil {
			a.fail(ctx, m.Step, fmt.Errorf("journal of changes: %w", err))
			return
		}
		ctx.Respond(&journalled{m.Header, m.request})
		a.cell.store(Snapshot{Step: m.Step})
	case *publish:
		a.publish(m.event)
	}
}

// write writes to a file, and tries again while an error may pass, at most LimitWrites times.
func (a *metricsActor) write(file string, f func() error) error {
	for tries := 1; ; tries++ {
		err := f()
		if err == nil || tries == LimitWrites || a.spec.MayPass == nil || !a.spec.MayPass(err) {
			return err
		}
		pause := pauseAfter(tries)
		a.publish(WarningEvent{fmt.Sprintf("%s could not be written to: %v; trying again in %.1f s, %d of %d tries are left", file, err, pause.Seconds(), LimitWrites-tries, LimitWrites)})
		time.Sleep(pause)
	}
}

func (a *metricsActor) publish(e Event) {
	if a.spec.OnEvent != nil {
		a.spec.OnEvent(e)
	}
}
