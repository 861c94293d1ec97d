package actors

import (
	"errors"
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe/telemetry/event"
)

// writeStep is a finished step; the sender is notified when its line is written.
type writeStep struct {
	Header
	event event.StepEvent
	norms *Norms // nil: not logged
}

// publish is any other event.
type publish struct{ event event.Event }

// metricsActor writes metrics.jsonl and publishes events.
type metricsActor struct {
	part
	local *local
}

func (a *metricsActor) Receive(ctx actor.Context) {
	defer a.rethrow(ctx)
	if a.failed {
		return // after a missing line no further line is written
	}
	switch m := ctx.Message().(type) {
	case *writeStep:
		a.cell.store(event.Snapshot{Step: m.Step, Doing: event.Writing})
		if a.spec.WriteRecord != nil {
			if err := a.write("metrics.jsonl", func() error { return a.spec.WriteRecord(m.event.Record) }); err != nil {
				a.failWrite(ctx, m.Step, fmt.Errorf("metrics of step %d: %w", m.event.Step, err))
				return
			}
		}
		if a.spec.WriteTrace != nil && m.event.Trace != nil {
			if err := a.write("trace.jsonl", func() error {
				return a.spec.WriteTrace(int64(m.event.Step), m.event.Trace,
					m.event.Clocks)
			}); err != nil {
				a.failWrite(ctx, m.Step, err)
				return
			}
		}
		if m.norms != nil {
			if err := a.write("stats.jsonl", func() error { return a.spec.WriteStats(*m.norms) }); err != nil {
				a.failWrite(ctx, m.Step, err)
				return
			}
		}
		ctx.Respond(&recorded{m.Header})
		a.publish(m.event)
		a.cell.store(event.Snapshot{Step: m.Step})
	case *journal:
		a.cell.store(event.Snapshot{Step: m.Step, Doing: event.Writing})
		err := a.write("changes.jsonl", func() error { return a.spec.WriteChange(m.request.Change) })
		if err != nil && !errors.Is(err, event.ErrJournal) {
			a.failWrite(ctx, m.Step, fmt.Errorf("journal of changes: %w", err))
			return
		}
		ctx.Respond(&journalled{*m, err})
		a.cell.store(event.Snapshot{Step: m.Step})
	case *publish:
		a.publish(m.event)
	}
}

// write writes to a file and repeats the attempt, with growing pauses, as long as the error may
// pass. After the run is asked to stop there are LimitWrites more attempts; if it ends with an
// error there are none.
func (a *metricsActor) write(file string, f func() error) error {
	hurry := a.local.hurry
	for tries, most := 1, 0; ; tries++ {
		err := f()
		if err == nil || tries == most || a.spec.MayPass == nil || !a.spec.MayPass(err) {
			return err
		}
		pause := pauseAfter(tries)
		text := fmt.Sprintf("cannot write to %s: %v; trying again in %.1f s", file, err, pause.Seconds())
		if most > 0 {
			text += fmt.Sprintf(", %d of %d attempts are left", most-tries, most)
		}
		a.publish(event.WarningEvent{Text: text})
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-hurry:
			hurry, tries, most = nil, 0, LimitWrites
		case <-a.local.over:
			return err
		}
		timer.Stop()
	}
}

// failWrite fails, and notes that lines are missing: no attempt may continue after their steps.
func (a *metricsActor) failWrite(ctx actor.Context, step int64, err error) {
	a.local.missing.Store(&err)
	a.fail(ctx, step, err)
}

func (a *metricsActor) publish(e event.Event) {
	if a.spec.OnEvent != nil {
		a.spec.OnEvent(e)
	}
}
