package actors

import (
	"fmt"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry/event"
	"github.com/troupe-ml/troupe/tensorops"
)

// A stage has one list at a time, and records the next when that has completed. Where the
// device would wait for the host meanwhile (tensorops.Queuer), it records and submits what comes
// next at once: the order's next actions, its norms, and behind an update the next order's
// first ones. The device executes lists in their order, so nothing that is computed
// changes. What others get is sent when its own list has completed, as ever.

// flight is a list that was submitted and has not completed.
type flight struct {
	step  int64
	phase event.Phase // of its actions; 0: it has none
	began time.Time
	after func(ctx actor.Context, f *flight) // what follows its completion
	doing []visit                            // its actions
	batch *Batch                             // host memory that it reads
}

// failIn fails in what was submitted. A validation's microbatches have the numbers of a step's, so
// it is named.
func (a *stageActor) failIn(ctx actor.Context, f *flight, err error) {
	if f.phase == event.Eval {
		err = fmt.Errorf("%v: %w", f.phase, err)
	}
	a.fail(ctx, f.step, err)
}

// queuesLists is how many lists this stage may have submitted.
func (a *stageActor) queuesLists() int {
	stream, ok := a.stream.(tensorops.Queuer)
	if !ok || a.spec.PostValidate {
		return 1
	}
	if stage, ok := a.stage.(Queuer); !ok || !stage.Queue() {
		return 1
	}
	return stream.QueuesLists()
}

// mayQueue reports whether what comes next may be recorded while the device executes other lists.
// What needs a device at rest, such as a copy of the weights, waits for it, and so does what comes after.
func (a *stageActor) mayQueue() bool {
	if a.state != stageRunning || len(a.flights) >= a.queues || len(a.copies) > 0 || a.decision != nil || a.summing {
		return false
	}
	next := a.order
	if next == nil && len(a.todo) > 0 {
		next, _ = a.todo[0].(*Order)
	}
	if next == nil || next.Phase != event.Train {
		return false
	}
	return a.order == nil || a.next < len(a.row) || a.stage.WantsTied() == 0
}

// reportLater is what a forward that was just recorded will have reported.
func (a *stageActor) reportLater(v *visit) func() stages.Report {
	if a.queues == 1 {
		return nil
	}
	return a.stage.(Queuer).ReportLater(int(v.Chunk), int(v.Microbatch)) //nolint:forcetypeassert // queuesLists has looked
}

// submit hands a list to the device; then follows its completion.
func (a *stageActor) submit(l *tensorops.List, then func(ctx actor.Context)) {
	a.launch(l, flight{after: func(ctx actor.Context, _ *flight) { then(ctx) }})
}

// submitActions hands over the list of the actions that were recorded.
func (a *stageActor) submitActions(l *tensorops.List) {
	f := flight{phase: a.order.Phase, after: a.finishActions, doing: a.doing, batch: a.batch}
	a.doing, a.batch = nil, nil
	a.launch(l, f)
}

func (a *stageActor) launch(l *tensorops.List, f flight) {
	f.step, f.began = a.step, time.Now()
	a.flights = append(a.flights, f)
	a.stream.Submit(l, func(err error) {
		a.root.Send(a.self, &deviceDone{err, time.Now()})
	})
	a.state = a.state.on(submitted)
}

// completed follows the completion of the list that was submitted first.
func (a *stageActor) completed(ctx actor.Context, m *deviceDone) {
	f := a.flights[0]
	a.flights = slices.Delete(a.flights, 0, 1)
	if f.began.Before(a.finished) { // it was behind another
		f.began = a.finished
	}
	a.finished = m.end
	if a.counted.Before(f.began) {
		a.counted = f.began
	}
	if busy := m.end.Sub(a.counted); busy > 0 {
		a.busy += busy
		a.counted = m.end
	}
	if f.batch != nil {
		f.batch.Release()
	}
	sent := len(a.lost)
	a.lost = append(a.lost, f.doing...)
	if len(a.flights) == 0 {
		a.move(ctx, atRest)
	}
	switch {
	case a.failed:
		return
	case m.err != nil:
		a.failIn(ctx, &f, m.err)
		return
	}
	f.after(ctx, &f)
	if a.failed {
		return
	}
	clear(a.lost[sent:])
	a.lost = a.lost[:sent]
	if a.doing == nil { // its memory serves again
		clear(f.doing)
		a.doing = f.doing[:0]
	}
	a.advance(ctx)
}
