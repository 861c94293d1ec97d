package actors

import (
	"errors"
	"fmt"
	"sync"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe/tensorops"
)

// worker spawns the actors of a run on this machine and supervises them. An
// actor that fails is never restarted behind the run's back: the first failure
// stops everything in order and is the run's error.
type worker struct {
	spec    *Spec
	tape    header
	cells   []*Cell
	streams []tensorops.Stream
	plan    *schedulerActor
	result  chan<- Outcome // capacity 1
	owned   *sync.WaitGroup

	pids     map[string]*actor.PID
	stopping bool
	outcome  Outcome
}

// Outcome is how a run ended.
type Outcome struct {
	State   TrainerState
	Stopped bool  // before the last step, by request
	Err     error // the first failure
}

// ActorError is an actor's failure, the root cause of a run's end.
type ActorError struct {
	Actor string
	Step  int64
	Err   error
}

func (e *ActorError) Error() string {
	return fmt.Sprintf("%s failed in step %d: %v", e.Actor, e.Step, e.Err)
}

func (e *ActorError) Unwrap() error { return e.Err }

// ErrKilled: the run was ended at once.
var ErrKilled = errors.New("the run was killed")

// kill ends the run at once.
type kill struct{}

func (w *worker) Receive(ctx actor.Context) {
	defer rethrow()
	switch m := ctx.Message().(type) {
	case *actor.Started:
		w.spawn(ctx)
	case *Failed:
		w.end(ctx, Outcome{Err: &ActorError{m.Actor, m.Step, m.Err}})
	case *finished:
		w.end(ctx, Outcome{Stopped: m.stopped})
	case kill:
		w.end(ctx, Outcome{Err: ErrKilled})
	case control:
		if pid := w.pids[schedulerName]; pid != nil {
			ctx.Send(pid, m)
		}
	case *actor.Terminated:
		w.terminated(ctx, m.Who)
	}
}

// HandleFailure makes the worker its children's supervisor: protoactor calls it
// when an actor panics.
func (w *worker) HandleFailure(_ *actor.ActorSystem, supervisor actor.Supervisor, child *actor.PID, _ *actor.RestartStatistics, reason, _ any) {
	supervisor.StopChildren(child)
	err, ok := reason.(error)
	if !ok {
		err = fmt.Errorf("panic: %v", reason)
	}
	name := child.Id
	for n, pid := range w.pids {
		if pid.Equal(child) {
			name = n
		}
	}
	if w.outcome.Err == nil {
		w.outcome.Err = &ActorError{Actor: name, Step: w.cells[0].Load().Step, Err: err}
	}
	supervisor.StopChildren(supervisor.Children()...)
	w.stopping = true
}

// spawn makes the actors and tells them their peers.
func (w *worker) spawn(ctx actor.Context) {
	w.pids = make(map[string]*actor.PID)
	add := func(name string, a actor.Actor) *actor.PID {
		pid := ctx.Spawn(actor.PropsFromProducer(func() actor.Actor { return a }))
		w.pids[name] = pid
		return pid
	}
	cell := func(i int) *Cell { return w.cells[i] }
	wire := &Wire{Header: Header{Run: w.tape.run, Epoch: w.tape.epoch, Step: w.spec.Start.Step}}
	wire.Scheduler = add(schedulerName, w.plan)
	wire.Loader = add(loaderName, &loader{spec: w.spec, cell: cell(1), tape: w.tape})
	wire.Checkpoint = add(checkpointName, &checkpointActor{spec: w.spec, cell: cell(2), tape: w.tape})
	wire.Metrics = add(metricsName, &metricsActor{spec: w.spec, cell: cell(3)})
	for r, s := range w.streams {
		wire.Stages = append(wire.Stages, add(stageName(r), &stageActor{spec: w.spec, rank: r, cell: cell(4 + r), tape: w.tape, stream: s, owned: w.owned}))
	}
	for _, pid := range w.pids {
		ctx.Watch(pid)
	}
	// The scheduler first: stages report to it.
	for _, pid := range append([]*actor.PID{wire.Scheduler, wire.Checkpoint}, wire.Stages...) {
		ctx.Send(pid, wire)
	}
}

// end stops all actors; the first reason counts.
func (w *worker) end(ctx actor.Context, o Outcome) {
	if w.stopping {
		return
	}
	w.stopping = true
	w.outcome = o
	for _, pid := range w.pids {
		if o.Err == nil {
			ctx.Poison(pid) // after what is in its mailbox: events, the last line
		} else {
			ctx.Stop(pid)
		}
	}
}

// terminated counts the actors out; after the last the result is there.
func (w *worker) terminated(ctx actor.Context, who *actor.PID) {
	for name, pid := range w.pids {
		if pid.Equal(who) {
			delete(w.pids, name)
		}
	}
	if len(w.pids) > 0 {
		return
	}
	w.outcome.State = w.plan.state
	w.result <- w.outcome
	ctx.Stop(ctx.Self())
}
