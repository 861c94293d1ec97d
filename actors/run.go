package actors

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/tensorops"
)

// Run is a training run in progress.
type Run struct {
	spec       Spec
	attempt    uuid.UUID
	system     *actor.ActorSystem
	log        *slog.Logger
	shutdown   func() // of a system of the run's own, else nil
	supervisor *actor.PID
	cells      []*StatusCell
	moves      atomic.Int64
	streams    []tensorops.Stream
	memory     *tensorops.Memory // for what crosses from one device to another
	copies     *tensorops.Memory // for what checkpoints are written from

	result   chan Outcome
	done     chan struct{}
	outcome  Outcome // set before done is closed
	quit     chan struct{}
	watched  chan struct{} // closed when watch has ended
	builders sync.WaitGroup
}

// Start checks the tables, spawns the actors and begins. The run ends by itself,
// by Stop or Kill, or by a failure; Wait must be called once it has.
func Start(spec Spec) (*Run, error) {
	tables, err := spec.analyse()
	if err != nil {
		return nil, err
	}
	attempt, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	r := &Run{spec: spec, attempt: attempt, result: make(chan Outcome, 1), done: make(chan struct{}), quit: make(chan struct{}), watched: make(chan struct{}),
		memory: tensorops.NewHostMemory(0), copies: tensorops.NewHostMemory(0)}
	id := runID{spec.Run, attempt}
	for _, name := range []string{schedulerName, loaderName, checkpointName, metricsName} {
		r.cells = append(r.cells, NewStatusCell(name, -1, &r.moves))
	}
	for rank := range spec.ranks() {
		r.cells = append(r.cells, NewStatusCell(stageName(rank), rank, &r.moves))
		r.streams = append(r.streams, spec.device(rank).NewStream(stageName(rank)))
	}
	if r.log = spec.Logger; r.log == nil {
		r.log = slog.New(slog.DiscardHandler) // events and errors tell what matters
	}
	r.log = r.log.With("run", spec.Run, "attempt", attempt)
	if r.system = spec.System; r.system == nil {
		r.system = actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return r.log }),
			actor.WithDeadLetterThrottleInterval(time.Nanosecond)) // its goroutine sleeps that long, and must not outlive the run
		r.shutdown = r.system.Shutdown
	}
	r.log.Info("run begins", "ranks", spec.ranks(), "step", spec.Start.Step)
	host := r.memory.NewArena("what crosses")
	r.supervisor, err = r.system.Root.SpawnNamed(actor.PropsFromProducer(func() actor.Actor {
		return &supervisor{spec: &r.spec, runID: id, cells: r.cells, streams: r.streams, host: host, copies: r.copies, tables: tables, result: r.result, builders: &r.builders}
	}, actor.WithSupervisor(supervision)), "troupe-"+attempt.String())
	if err != nil { // by a middleware of the caller's: the name is nobody else's
		r.result <- Outcome{State: spec.Start, Err: err}
	}
	go r.finish()
	go r.watch()
	if err != nil {
		r.Wait()
		return nil, fmt.Errorf("spawning the run's supervisor: %w", err)
	}
	return r, nil
}

// finish waits for the end and releases what the run owns. However it came about, all
// that stages and messages hold of the streams' memory goes back with it, and what still
// lies in a mailbox has nothing left to give back.
func (r *Run) finish() {
	outcome := <-r.result
	close(r.quit)
	<-r.watched
	for _, s := range r.streams {
		s.Close()
	}
	r.builders.Wait()
	for _, s := range r.streams { // now that nothing uses the memory of another
		s.Arena().Close()
	}
	if r.shutdown != nil {
		r.shutdown()
	}
	r.memory.Close()
	r.copies.Close()
	if outcome.Err != nil {
		r.log.Error("run failed", "step", outcome.State.Step, "err", outcome.Err)
	} else {
		r.log.Info("run ended", "step", outcome.State.Step, "stopped", outcome.Stopped)
	}
	r.outcome, r.spec = outcome, Spec{} // whoever keeps the run keeps no data by it
	close(r.done)
}

// watch reports when nothing has moved for StallAfter.
func (r *Run) watch() {
	defer close(r.watched)
	if r.spec.OnEvent == nil {
		return
	}
	watchdog{
		after: r.spec.StallAfter, moves: r.moves.Load, paused: func() bool { return r.cells[0].Load().Doing == Paused },
		tell: func(quiet time.Duration) { r.spec.OnEvent(StallEvent{Quiet: quiet, Status: r.Status()}) },
	}.run(r.quit)
}

// Attempt identifies this attempt at the run, in its messages.
func (r *Run) Attempt() uuid.UUID { return r.attempt }

// Status reads every actor's cell. It needs no actor to answer.
func (r *Run) Status() Status {
	s := Status{Time: time.Now()}
	for _, c := range r.cells {
		s.Actors = append(s.Actors, c.Load())
	}
	return s
}

// Pause holds the run at the end of its step, Resume lets it go on.
func (r *Run) Pause() { r.system.Root.Send(r.supervisor, controlPause) }

// Resume lets a paused run go on.
func (r *Run) Resume() { r.system.Root.Send(r.supervisor, controlResume) }

// Checkpoint asks for a checkpoint at the end of the step.
func (r *Run) Checkpoint() { r.system.Root.Send(r.supervisor, controlSave) }

// Stop ends the run at the end of its step, with the validation if one is due there, and a
// checkpoint.
func (r *Run) Stop() { r.system.Root.Send(r.supervisor, controlStop) }

// Kill ends the run at once; a checkpoint in progress is finished.
func (r *Run) Kill() { r.system.Root.Send(r.supervisor, kill{}) }

// Done is closed when the run has ended.
func (r *Run) Done() <-chan struct{} { return r.done }

// Wait waits for the end and returns how it came about. Nothing of the run is
// left behind afterwards.
func (r *Run) Wait() Outcome {
	<-r.done
	return r.outcome
}
