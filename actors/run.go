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

// Start checks the tables, spawns the actors and starts training. The run ends by itself, through
// Stop or Kill, or through a failure; call Wait afterwards.
func Start(spec Spec) (*Run, error) {
	if spec.Carry != nil {
		spec.Start, spec.Target = spec.Carry.State(), spec.Carry.Target()
	}
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
			actor.WithDeadLetterThrottleInterval(time.Nanosecond)) // its goroutine sleeps for this time, and must not outlive the run
		l.shutdown = l.system.Shutdown
	}
	if spec.Attach != nil {
		spec.Attach(newCodec(l, tables, toCoordinator, ""))
	}
	if spec.Reader != nil {
		l.stopReads(spec.Reader)
		l.readsFrom(spec.Reader, actor.NewPID(l.system.Address(), SupervisorID(l.id.attempt)))
	}
	l.log.Info("run started", "ranks", spec.ranks(), "step", spec.Start.Step)
	r.supervisor, err = l.system.Root.SpawnNamed(actor.PropsFromProducer(func() actor.Actor {
		return &supervisor{local: l, tables: tables, result: r.result}
	}, actor.WithSupervisor(supervision)), SupervisorID(l.id.attempt))
	if err != nil { // from a middleware of the caller: no other actor has this name
		r.result <- Outcome{State: spec.Start, Err: err}
	}
	go r.finish()
	go r.watch()
	if err != nil {
		r.Wait()
		return nil, fmt.Errorf("spawn the run's supervisor: %w", err)
	}
	return r, nil
}

// finish waits for the end and releases what the run owns.
func (r *Run) finish() {
	outcome := <-r.result
	if r.spec.Reader != nil {
		r.spec.Reader.stop()
	}
	close(r.quit)
	<-r.watched
	if outcome.Carry != nil {
		r.keep(true)
	}
	r.close()
	switch {
	case outcome.lost || outcome.again: // the caller restarts the run, or says that it failed
		r.log.Info("attempt ended", "step", outcome.State.Step, "err", outcome.Err)
	case outcome.Err != nil:
		r.log.Error("run failed", "step", outcome.State.Step, "err", outcome.Err)
	case outcome.Regroup != nil:
		r.log.Info("attempt ended with a checkpoint; the run continues on other processes", "step", outcome.State.Step)
	default:
		r.log.Info("run ended", "step", outcome.State.Step, "stopped", outcome.Stopped)
	}
	r.outcome = outcome
	close(r.done)
}

// watch reports when no actor has made progress for StallAfter.
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

// Attempt returns the id of this attempt, which is in its messages.
func (r *Run) Attempt() uuid.UUID { return r.id.attempt }

// Status reads every actor's cell. It needs no answer from an actor.
func (r *Run) Status() event.Status {
	s := event.Status{Time: time.Now(), Actors: r.status()}
	if spec := r.shown.Load(); spec != nil && spec.CutLinks != nil {
		s.Cut = spec.CutLinks()
	}
	return s
}

// Observe records the last known status of an actor in another process.
func (r *Run) Observe(s event.Snapshot) {
	if c := r.byName[s.Actor]; c != nil && s.Rank >= 0 && c.Load().Rank == s.Rank {
		c.observe(s)
	}
}

// Publish publishes an event to the listeners of the run.
func (r *Run) Publish(e event.Event) { r.system.Root.Send(r.supervisor, &publish{e}) }

// Stalled publishes, without a request, what all actors wait for.
func (r *Run) Stalled(quiet time.Duration) {
	r.Publish(event.StallEvent{Quiet: quiet, Status: r.Status()})
}

// Ping waits until the supervisor, above all actors of the run, answers. A run that has ended answers nothing.
func (r *Run) Ping(within time.Duration) error {
	select {
	case <-r.done:
		return nil
	default:
	}
	if _, err := r.system.Root.RequestFuture(r.supervisor, ping{}, within).Result(); err != nil {
		select {
		case <-r.done: // it ended meanwhile
			return nil
		default:
		}
		return fmt.Errorf("the run's supervisor does not answer: %w", err)
	}
	return nil
}

// Lost tells the run that the process of some ranks failed or disconnected: the attempt ends with
// err.
func (r *Run) Lost(ranks []int, err error) {
	r.system.Root.Send(r.supervisor, &lost{ranks: ranks, err: err})
}

// Leave is Lost for ranks whose process is still there and leaves: the next attempt should find their state elsewhere. Their stages outlive
// the attempt, so that it can adopt them if other processes fail that have that state.
func (r *Run) Leave(ranks []int, err error) {
	r.system.Root.Send(r.supervisor, &lost{ranks: ranks, err: err, leaves: true})
}

// Ready reports whether all stages have had their weights. Before that, a renewal would find some without.
func (r *Run) Ready() bool { return r.ready.Load() }

// Pause pauses the run at the end of its step; Resume resumes it.
func (r *Run) Pause() { r.Change(event.Change{Kind: event.ChangePause}) }

// Resume resumes a paused run.
func (r *Run) Resume() { r.Change(event.Change{Kind: event.ChangeResume}) }

// Checkpoint requests a checkpoint at the end of the step.
func (r *Run) Checkpoint() { r.Change(event.Change{Kind: event.ChangeCheckpoint}) }

// Stop ends the run at the end of its step, with the validation if one is due there, and a
// checkpoint.
func (r *Run) Stop() { r.Change(event.Change{Kind: event.ChangeStop}) }

// Change requests a change. An event reports it after it is in the journal.
func (r *Run) Change(c event.Change) { r.Ask(Request{Change: c}) }

// Ask is Change for a caller that keeps requests beyond this attempt; see Spec.Requests.
func (r *Run) Ask(q Request) { r.system.Root.Send(r.supervisor, q) }

// Kill ends the run at once; a checkpoint in progress is finished.
func (r *Run) Kill() { r.system.Root.Send(r.supervisor, kill{}) }

// Kept returns the stages in this process that outlive the attempt, after Wait, if the outcome has a Carry. The caller owns them.
func (r *Run) Kept() []*Kept {
	<-r.done
	return r.kept
}

// Done is closed when the run has ended.
func (r *Run) Done() <-chan struct{} { return r.done }

// Wait waits for the end and returns the outcome. Afterwards nothing of the run remains.
func (r *Run) Wait() Outcome {
	<-r.done
	return r.outcome
}
