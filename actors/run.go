package actors

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/telemetry/event"
)

// Run is a training run in progress.
type Run struct {
	*local
	supervisor *actor.PID

	result  chan Outcome
	done    chan struct{}
	outcome Outcome // set before done is closed
	quit    chan struct{}
	watched chan struct{} // closed when watch has ended
}

// Start checks the tables, spawns the actors and begins. The run ends by itself,
// by Stop or Kill, or by a failure; Wait must be called once it has.
func Start(spec Spec) (*Run, error) {
	tables, err := spec.analyse()
	if err != nil {
		return nil, err
	}
	l, err := newLocal(spec)
	if err != nil {
		return nil, err
	}
	r := &Run{local: l, result: make(chan Outcome, 1), done: make(chan struct{}), quit: make(chan struct{}), watched: make(chan struct{})}
	for _, name := range []string{schedulerName, loaderName, checkpointName, metricsName, weightsName} {
		if name != weightsName || spec.Weights != nil {
			l.addCell(name, -1)
		}
	}
	for rank := range spec.ranks() {
		l.addCell(spec.stageName(rank), rank)
	}
	if l.system = spec.System; l.system == nil {
		l.system = actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return l.log }),
			actor.WithDeadLetterThrottleInterval(time.Nanosecond)) // its goroutine sleeps that long, and must not outlive the run
		l.shutdown = l.system.Shutdown
	}
	if spec.Attach != nil {
		spec.Attach(newCodec(l, tables, toCoordinator, ""))
	}
	l.log.Info("run begins", "ranks", spec.ranks(), "step", spec.Start.Step)
	r.supervisor, err = l.system.Root.SpawnNamed(actor.PropsFromProducer(func() actor.Actor {
		return &supervisor{local: l, tables: tables, result: r.result}
	}, actor.WithSupervisor(supervision)), SupervisorID(l.id.attempt))
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

// finish waits for the end and releases what the run owns.
func (r *Run) finish() {
	outcome := <-r.result
	close(r.quit)
	<-r.watched
	r.close()
	if outcome.Err != nil {
		r.log.Error("run failed", "step", outcome.State.Step, "err", outcome.Err)
	} else {
		r.log.Info("run ended", "step", outcome.State.Step, "stopped", outcome.Stopped)
	}
	r.outcome = outcome
	close(r.done)
}

// watch reports when nothing has moved for StallAfter.
func (r *Run) watch() {
	defer close(r.watched)
	if r.spec.OnEvent == nil {
		return
	}
	watchdog{
		after: r.spec.StallAfter, moves: r.moves.Load, paused: func() bool { return r.cells[0].Load().Doing == event.Paused },
		tell: func(quiet time.Duration) { r.spec.OnEvent(event.StallEvent{Quiet: quiet, Status: r.Status()}) },
	}.run(r.quit)
}

// Attempt identifies this attempt at the run, in its messages.
func (r *Run) Attempt() uuid.UUID { return r.id.attempt }

// Status reads every actor's cell. It needs no actor to answer.
func (r *Run) Status() event.Status {
	s := event.Status{Time: time.Now(), Actors: r.status()}
	if spec := r.shown.Load(); spec != nil && spec.CutLinks != nil {
		s.Cut = spec.CutLinks()
	}
	return s
}

// Observe takes what an actor in another process was last heard to be doing.
func (r *Run) Observe(s event.Snapshot) {
	if c := r.byName[s.Actor]; c != nil && s.Rank >= 0 && c.Load().Rank == s.Rank {
		c.observe(s)
	}
}

// Publish tells whoever listens to the run's events of another one.
func (r *Run) Publish(e event.Event) { r.system.Root.Send(r.supervisor, &publish{e}) }

// Stalled says, unasked, what everybody waits for.
func (r *Run) Stalled(quiet time.Duration) {
	r.Publish(event.StallEvent{Quiet: quiet, Status: r.Status()})
}

// Lost tells the run that the process of some ranks is gone: it ends with err.
func (r *Run) Lost(ranks []int, err error) {
	r.system.Root.Send(r.supervisor, &lost{ranks, err})
}

// Pause holds the run at the end of its step, Resume lets it go on.
func (r *Run) Pause() { r.Change(event.Change{Kind: event.ChangePause}) }

// Resume lets a paused run go on.
func (r *Run) Resume() { r.Change(event.Change{Kind: event.ChangeResume}) }

// Checkpoint asks for a checkpoint at the end of the step.
func (r *Run) Checkpoint() { r.Change(event.Change{Kind: event.ChangeCheckpoint}) }

// Stop ends the run at the end of its step, with the validation if one is due there, and a
// checkpoint.
func (r *Run) Stop() { r.Change(event.Change{Kind: event.ChangeStop}) }

// Change makes a change, which an event tells of when it is journalled.
func (r *Run) Change(c event.Change) { r.Ask(Request{Change: c}) }

// Ask is Change for who keeps requests beyond this attempt: see Spec.Requests.
func (r *Run) Ask(q Request) { r.system.Root.Send(r.supervisor, q) }

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
