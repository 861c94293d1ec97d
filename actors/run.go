package actors

import (
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
	spec    Spec
	epoch   uuid.UUID
	system  *actor.ActorSystem
	worker  *actor.PID
	cells   []*Cell
	moves   atomic.Int64
	streams []tensorops.Stream
	memory  *tensorops.HostMemory // for what crosses from one device to another
	host    tensorops.Arena       // of it

	result  chan Outcome
	done    chan struct{}
	outcome Outcome // set before done is closed
	quit    chan struct{}
	owned   sync.WaitGroup
}

// Start checks the tables, spawns the actors and begins. The run ends by itself,
// by Stop or Kill, or by a failure; Wait must be called once it has.
func Start(spec Spec) (*Run, error) {
	epoch, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	r := &Run{spec: spec, epoch: epoch, result: make(chan Outcome, 1), done: make(chan struct{}), quit: make(chan struct{})}
	tape := header{spec.Run, epoch}
	for _, name := range []string{schedulerName, loaderName, checkpointName, metricsName} {
		r.cells = append(r.cells, NewCell(name, -1, &r.moves))
	}
	plan, err := newSchedulerActor(part{spec: &r.spec, cell: r.cells[0], tape: tape})
	if err != nil {
		return nil, err
	}
	r.memory = tensorops.NewHostMemory(0)
	r.host = r.memory.NewArena("what crosses")
	for rank := range spec.ranks() {
		r.cells = append(r.cells, NewCell(stageName(rank), rank, &r.moves))
		r.streams = append(r.streams, spec.device(rank).NewStream(stageName(rank)))
	}
	// What the actor library logs of its own accord is covered by events and
	// errors here.
	r.system = actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger {
		return slog.New(slog.DiscardHandler)
	}), actor.WithDeadLetterThrottleInterval(time.Nanosecond)) // it sleeps so long in a goroutine
	w := &worker{spec: &r.spec, tape: tape, cells: r.cells, streams: r.streams, host: r.host, plan: plan, result: r.result, owned: &r.owned}
	r.worker = r.system.Root.Spawn(actor.PropsFromProducer(func() actor.Actor { return w }))
	r.owned.Add(2)
	go r.finish()
	go r.watch()
	return r, nil
}

// finish waits for the end and releases what the run owns.
func (r *Run) finish() {
	defer r.owned.Done()
	outcome := <-r.result
	close(r.quit)
	for _, s := range r.streams {
		s.Close()
	}
	r.system.Shutdown()
	tensorops.CloseArena(r.host)
	r.outcome = outcome
	close(r.done)
}

// watch reports when nothing has moved for StallAfter, once until it moves again.
func (r *Run) watch() {
	defer r.owned.Done()
	if r.spec.StallAfter <= 0 || r.spec.OnEvent == nil {
		return
	}
	tick := time.NewTicker(min(watchEvery, r.spec.StallAfter/2+1))
	defer tick.Stop()
	last, since, told := r.moves.Load(), time.Now(), false
	for {
		select {
		case <-r.quit:
			return
		case <-tick.C:
		}
		if now := r.moves.Load(); now != last || r.cells[0].Load().Doing == Paused {
			last, since, told = now, time.Now(), false
			continue
		}
		if quiet := time.Since(since); quiet >= r.spec.StallAfter && !told {
			told = true
			r.spec.OnEvent(StallEvent{Quiet: quiet, Status: r.Status()})
		}
	}
}

// Epoch identifies this attempt at the run, in its messages.
func (r *Run) Epoch() uuid.UUID { return r.epoch }

// Status reads every actor's cell. It needs no actor to answer.
func (r *Run) Status() Status {
	s := Status{Time: time.Now()}
	for _, c := range r.cells {
		s.Actors = append(s.Actors, c.Load())
	}
	return s
}

// Pause holds the run at the end of its step, Resume lets it go on.
func (r *Run) Pause() { r.system.Root.Send(r.worker, controlPause) }

// Resume lets a paused run go on.
func (r *Run) Resume() { r.system.Root.Send(r.worker, controlResume) }

// Checkpoint asks for a checkpoint at the end of the step.
func (r *Run) Checkpoint() { r.system.Root.Send(r.worker, controlSave) }

// Stop ends the run at the end of its step, with a checkpoint.
func (r *Run) Stop() { r.system.Root.Send(r.worker, controlStop) }

// Kill ends the run at once; a checkpoint in the making is finished.
func (r *Run) Kill() { r.system.Root.Send(r.worker, kill{}) }

// Done is closed when the run has ended.
func (r *Run) Done() <-chan struct{} { return r.done }

// Wait waits for the end and returns how it came about. Nothing of the run is
// left behind afterwards.
func (r *Run) Wait() Outcome {
	<-r.done
	r.owned.Wait()
	return r.outcome
}
