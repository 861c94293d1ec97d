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

// deviceQueue are the lists that the device executes, or has yet to.
type deviceQueue struct {
	lists     []submission
	most      int           // lists that may be submitted and not complete
	summing   bool          // the order's norms are
	finished  time.Time     // end of the last list that has completed
	busy      time.Duration // device time: see StageDone
	counted   time.Time     // up to when it is counted
	recording []pass        // one, or an overlapped pair
	completed []pass        // whose results are not sent
	batch     *Batch        // host memory that what is being recorded reads
}

// submission is a list that was submitted and has not completed.
type submission struct {
	step   int64
	phase  event.Phase // of its actions; 0: it has none
	began  time.Time
	after  func(ctx actor.Context, f *submission) // what follows its completion
	passes []pass                                 // its actions
	batch  *Batch                                 // host memory that it reads
}

// failIn fails in what was submitted. A validation's microbatches have the numbers of a step's, so
// it is named.
func (a *stageActor) failIn(ctx actor.Context, f *submission, err error) {
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
	if a.state != stageRunning || len(a.device.lists) >= a.device.most || len(a.copies) > 0 || a.update.decision != nil || a.device.summing {
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
func (a *stageActor) reportLater(p *pass) func() stages.Report {
	if a.device.most == 1 {
		return nil
	}
	return a.stage.(Queuer).ReportLater(int(p.Chunk), int(p.Microbatch))
}

// submit hands a list to the device; then follows its completion.
func (a *stageActor) submit(l *tensorops.List, then func(ctx actor.Context)) {
	a.launch(l, submission{after: func(ctx actor.Context, _ *submission) { then(ctx) }})
}

// submitActions hands over the list of the actions that were recorded.
func (a *stageActor) submitActions(l *tensorops.List) {
	f := submission{phase: a.order.Phase, after: a.finishActions, passes: a.device.recording, batch: a.device.batch}
	a.device.recording, a.device.batch = nil, nil
	a.launch(l, f)
}

func (a *stageActor) launch(l *tensorops.List, f submission) {
	f.step, f.began = a.step, time.Now()
	a.device.lists = append(a.device.lists, f)
	a.stream.Submit(l, func(err error) {
		a.root.Send(a.self, &deviceDone{err, time.Now()})
	})
	a.state = a.state.on(submitted)
}

// listCompleted follows the completion of the list that was submitted first.
func (a *stageActor) listCompleted(ctx actor.Context, m *deviceDone) {
	f := a.device.lists[0]
	a.device.lists = slices.Delete(a.device.lists, 0, 1)
	if f.began.Before(a.device.finished) { // it was behind another
		f.began = a.device.finished
	}
	a.device.finished = m.end
	if a.device.counted.Before(f.began) {
		a.device.counted = f.began
	}
	if busy := m.end.Sub(a.device.counted); busy > 0 {
		a.device.busy += busy
		a.device.counted = m.end
	}
	if f.batch != nil {
		f.batch.Release()
	}
	sent := len(a.device.completed)
	a.device.completed = append(a.device.completed, f.passes...)
	if len(a.device.lists) == 0 {
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
	clear(a.device.completed[sent:])
	a.device.completed = a.device.completed[:sent]
	if a.device.recording == nil { // its memory serves again
		clear(f.passes)
		a.device.recording = f.passes[:0]
	}
	a.advance(ctx)
}

// stageState is where a stage actor is in its life. A failure is no state: what is under
// way continues, but nothing new starts (part.failed), until the supervisor says halt.
type stageState uint8

const (
	stageCreated  stageState = iota // knows nobody
	stageBuilding                   // a goroutine makes the stage
	stageResting                    // what comes next may start
	stageRunning                    // the device executes a list
	stageHalting                    // as building or running, and told to halt
	stageHalted                     // for good
)

// stageEvent is what moves a stage actor from one state to the next.
type stageEvent uint8

const (
	peersKnown stageEvent = iota
	submitted
	atRest // the goroutine that makes the stage, or the device, has answered
	haltAsked
)

// stageMoves has the state that follows; an event that it doesn't name changes nothing.
var stageMoves = [...][haltAsked + 1]stageState{
	stageCreated:  {peersKnown: stageBuilding, haltAsked: stageHalted},
	stageBuilding: {atRest: stageResting, haltAsked: stageHalting},
	stageResting:  {submitted: stageRunning, haltAsked: stageHalted},
	stageRunning:  {atRest: stageResting, haltAsked: stageHalting},
	stageHalting:  {atRest: stageHalted},
	stageHalted:   {},
}

// on is the state that follows an event.
func (s stageState) on(e stageEvent) stageState {
	if next := stageMoves[s][e]; next != stageCreated {
		return next
	}
	return s
}

// move follows an event. A stage that halts says so and frees what it holds.
func (a *stageActor) move(ctx actor.Context, e stageEvent) {
	before := a.state
	a.state = before.on(e)
	if a.state == stageHalted && before != stageHalted {
		ctx.Send(ctx.Parent(), &halted{a.rank})
		a.drain()
		if a.stopping {
			ctx.Stop(ctx.Self())
		}
	}
}
