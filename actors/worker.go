package actors

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe/tensorops"
)

// worker spawns the actors of a run on this machine and supervises them. An
// actor that fails is never restarted behind the run's back: the first failure
// stops everything in order and is the run's error.
//
// The order is: the stages halt, one by one as their devices come to rest. When
// all have, no tensor is sent any more, and every actor stops behind what is in
// its mailbox, so that nothing is lost there.
type worker struct {
	spec    *Spec
	tape    header
	cells   []*Cell
	streams []tensorops.Stream
	host    tensorops.Arena // for what crosses from one device to another
	plan    *schedulerActor
	result  chan<- Outcome // capacity 1
	owned   *sync.WaitGroup

	root     *actor.RootContext
	pids     map[string]*actor.PID // that live
	active   map[string]bool       // stages that may send tensors
	panicked map[string]bool
	ending   bool
	outcome  Outcome
}

// Outcome is how a run ended.
type Outcome struct {
	State   TrainerState
	Updates Updates
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
	defer w.rescue(ctx)
	switch m := ctx.Message().(type) {
	case *actor.Started:
		w.root = ctx.ActorSystem().Root
		w.spawn(ctx)
	case *Failed:
		if w.tape.accepts(m.Header) {
			w.end(Outcome{Err: &ActorError{m.Actor, m.Step, m.Err}})
		}
	case *finished:
		w.end(Outcome{Stopped: m.stopped})
	case kill:
		if !w.ending {
			w.end(Outcome{Err: ErrKilled})
		}
	case control:
		if pid := w.pids[schedulerName]; pid != nil {
			ctx.Send(pid, m)
		}
	case StatusRequest:
		if pid := w.pids[schedulerName]; pid != nil {
			ctx.Forward(pid) // what the run does is what its scheduler does
		}
	case *halted:
		w.rest(stageName(m.rank))
	case *actor.Terminated:
		w.terminated(ctx, m.Who)
	case *actor.Stopped:
		w.outcome.State, w.outcome.Updates = w.plan.state, w.plan.updates
		w.result <- w.outcome
	}
}

// rescue ends the run when the worker itself panics: protoactor's own choice
// would be to start another run in its place.
func (w *worker) rescue(ctx actor.Context) {
	if v := recover(); v != nil {
		w.outcome.Err = &Panic{v, debug.Stack()}
		ctx.Stop(ctx.Self())
	}
}

// HandleFailure makes the worker its children's supervisor: protoactor calls it
// when an actor panics. The actor goes on, as one that has failed, to release
// what it owns; when that panics too, it is stopped.
func (w *worker) HandleFailure(_ *actor.ActorSystem, supervisor actor.Supervisor, child *actor.PID, _ *actor.RestartStatistics, reason, _ any) {
	err, ok := reason.(error)
	if !ok {
		err = fmt.Errorf("panic: %v", reason)
	}
	failure := &ActorError{Actor: w.name(child), Err: err}
	for _, c := range w.cells {
		if s := c.Load(); s.Actor == failure.Actor {
			failure.Step = s.Step
		}
	}
	w.end(Outcome{Err: failure})
	if w.panicked[failure.Actor] {
		supervisor.StopChildren(child)
		return
	}
	w.panicked[failure.Actor] = true
	supervisor.ResumeChildren(child)
}

// name returns what people call an actor.
func (w *worker) name(who *actor.PID) string {
	for name, pid := range w.pids {
		if pid.Equal(who) {
			return name
		}
	}
	return who.Id
}

// spawn makes the actors and tells them their peers.
func (w *worker) spawn(ctx actor.Context) {
	w.pids, w.active, w.panicked = make(map[string]*actor.PID), make(map[string]bool), make(map[string]bool)
	add := func(name string, a actor.Actor, opts ...actor.PropsOption) *actor.PID {
		pid, err := ctx.SpawnNamed(actor.PropsFromProducer(func() actor.Actor { return a }, opts...), name)
		if err != nil {
			panic(err) // the name is taken: there is another worker of this one's name
		}
		w.pids[name] = pid
		return pid
	}
	common := func(i int) part { return part{spec: w.spec, cell: w.cells[i], tape: w.tape} }
	wire := &Wire{Header: Header{Run: w.tape.run, Epoch: w.tape.epoch, Step: w.spec.Start.Step}}
	wire.Scheduler = add(schedulerName, w.plan)
	wire.Loader = add(loaderName, &loader{part: common(1)})
	wire.Checkpoint = add(checkpointName, &checkpointActor{part: common(2)})
	wire.Metrics = add(metricsName, &metricsActor{part: common(3)})
	// A stage takes a message on the goroutine that sends it. So its device starts
	// the next action without a switch of goroutines, and what the action lets
	// another stage do starts a moment before.
	inline := actor.WithDispatcher(actor.NewSynchronizedDispatcher(throughput))
	for r, s := range w.streams {
		wire.Stages = append(wire.Stages, add(stageName(r), &stageActor{part: common(4 + r), rank: r, stream: s, crossing: crossing{host: w.host}, owned: w.owned}, inline))
		w.active[stageName(r)] = true
	}
	// The scheduler first: stages report to it.
	for _, pid := range append([]*actor.PID{wire.Scheduler, wire.Checkpoint}, wire.Stages...) {
		ctx.Send(pid, wire)
	}
}

// end begins the end of the run. The first reason counts, but a run is not
// finished whose last line could not be written.
func (w *worker) end(o Outcome) {
	if w.ending {
		if w.outcome.Err == nil {
			w.outcome.Err = o.Err
		}
		return
	}
	w.ending, w.outcome = true, o
	for name := range w.active {
		w.root.Send(w.pids[name], halt{})
	}
}

// rest notes that a stage has halted; after the last, every actor stops behind
// what is in its mailbox.
func (w *worker) rest(stage string) {
	if !w.active[stage] {
		return
	}
	delete(w.active, stage)
	if len(w.active) == 0 {
		for _, pid := range w.pids {
			w.root.Poison(pid)
		}
	}
}

// terminated counts the actors out; the worker is the last.
func (w *worker) terminated(ctx actor.Context, who *actor.PID) {
	name := w.name(who)
	delete(w.pids, name)
	w.rest(name) // where it could not say so itself
	if len(w.pids) == 0 {
		ctx.Stop(ctx.Self())
	}
}
