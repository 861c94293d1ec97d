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

// A stage normally has one list at a time and records the next after that has completed. If the
// device would otherwise wait for the host (tensorops.Queuer), the stage records and submits the
// following lists at once: the order's next actions, its norms and, after an update, the next
// order's first actions. The device executes lists in order, so the results do not change. Outputs
// are still sent when their own list has completed.

// deviceQueue holds the submitted lists that have not completed.
type deviceQueue struct {
	lists     []submission
	most      int           // largest number of submitted lists that are not complete
	summing   bool          // the order's norms are submitted
	finished  time.Time     // end of the last list that has completed
	busy      time.Duration // device time: see StageDone
	counted   time.Time     // time up to which busy is counted
	recording []pass        // one, or an overlapped pair
	completed []pass        // passes whose results are not sent yet
	batch     *Batch        // host memory read by what is being recorded
}

// submission is a list that was submitted and has not completed.
type submission struct {
	step   int64
	phase  event.Phase // phase of its actions; 0: no actions
	began  time.Time
	after  func(ctx actor.Context, f *submission) // called after its completion
	passes []pass                                 // its actions
	batch  *Batch                                 // host memory that it reads
	update bool                                   // it changes weights
}

// failIn fails with the error of a submission. It names a validation's microbatches as such, since
// they have the numbers of a step's.
func (a *stageActor) failIn(ctx actor.Context, f *submission, err error) {
	if f.phase == event.Eval {
		err = fmt.Errorf("%v: %w", f.phase, err)
	}
	a.fail(ctx, f.step, err)
}

// queuesLists returns how many lists this stage may have submitted.
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

// mayQueue reports whether the next list may be recorded while the device executes others. What
// needs an idle device, such as a copy of the weights, waits for it, and so does everything after
// it.
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

// reportLater returns a function for the report of a forward that was just recorded.
func (a *stageActor) reportLater(p *pass) func() stages.Report {
	if a.device.most == 1 {
		return nil
	}
	return a.stage.(Queuer).ReportLater(int(p.Chunk), int(p.Microbatch))
}

// submit submits a list to the device; then runs after its completion.
func (a *stageActor) submit(l *tensorops.List, then func(ctx actor.Context)) {
	a.launch(l, submission{after: func(ctx actor.Context, _ *submission) { then(ctx) }})
}

// submitUpdate submits a list that changes weights.
func (a *stageActor) submitUpdate(l *tensorops.List, then func(ctx actor.Context)) {
	a.launch(l, submission{after: func(ctx actor.Context, _ *submission) { then(ctx) }, update: true})
}

// submitActions submits the list of the recorded actions.
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

// listCompleted handles the completion of the list that was submitted first.
func (a *stageActor) listCompleted(ctx actor.Context, m *deviceDone) {
	f := a.device.lists[0]
	a.device.lists = slices.Delete(a.device.lists, 0, 1)
	if f.began.Before(a.device.finished) { // it waited for another list
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
	if m.err != nil && (f.update || !a.edges.memory.addressable) { // a failure may leave nothing of a GPU's memory defined
		a.update.broken = m.err
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
	if a.device.recording == nil { // its memory is reused
		clear(f.passes)
		a.device.recording = f.passes[:0]
	}
	a.advance(ctx)
}

// stageState is the state of a stage actor. A failure is not a state: work in progress continues
// but nothing new starts (part.failed), until the supervisor says halt.
type stageState uint8

const (
	stageCreated  stageState = iota // knows no peers
	stageBuilding                   // a goroutine builds the stage
	stageResting                    // the next work may start
	stageRunning                    // the device executes a list
	stageHalting                    // building or running, and told to halt
	stageHalted                     // final
)

// stageEvent moves a stage actor from one state to the next.
type stageEvent uint8

const (
	peersKnown stageEvent = iota
	submitted
	atRest // the goroutine that builds the stage, or the device, has answered
	haltAsked
)

// stageMoves holds the next state for each state and event; an event that is not listed changes
// nothing.
var stageMoves = [...][haltAsked + 1]stageState{
	stageCreated:  {peersKnown: stageBuilding, haltAsked: stageHalted},
	stageBuilding: {atRest: stageResting, haltAsked: stageHalting},
	stageResting:  {submitted: stageRunning, haltAsked: stageHalted},
	stageRunning:  {atRest: stageResting, haltAsked: stageHalting},
	stageHalting:  {atRest: stageHalted},
	stageHalted:   {},
}

// on returns the state after an event.
func (s stageState) on(e stageEvent) stageState {
	if next := stageMoves[s][e]; next != stageCreated {
		return next
	}
	return s
}

// move handles an event.
func (a *stageActor) move(ctx actor.Context, e stageEvent) {
	a.state = a.state.on(e)
	a.tellHalted(ctx)
}

// tellHalted reports, once, that the stage and its shadows have halted, and frees what it holds.
func (a *stageActor) tellHalted(ctx actor.Context) {
	busy := slices.ContainsFunc(slices.Concat(a.shadows, a.retired), func(s *shadow) bool { return s.busy })
	if a.state != stageHalted || a.told || busy {
		return
	}
	a.told = true
	ctx.Send(ctx.Parent(), &halted{a.rank})
	a.drain()
	a.reportEnd()
	if a.stopping {
		ctx.Stop(ctx.Self())
	}
}

// reportEnd says in which state the stage has ended.
func (a *stageActor) reportEnd() {
	if u := &a.update; a.stage != nil {
		a.local.ends[a.rank] = &stageEnd{settled: u.settled, update: u.state, keep: u.keep, broken: u.broken}
	}
}
