package troupe

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/internal/run/attempt"
	"github.com/troupe-ml/troupe/internal/run/control"
	"github.com/troupe-ml/troupe/telemetry/event"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cuda"
)

// Change requests a change, for now or for the step that it names. A ChangeEvent follows when the run has
// journaled or rejected it. A step that has ended means now, except for a stop, which is then rejected. If the run resumes from
// an older checkpoint, it repeats the change. The error is ErrOptions for an invalid change.
func (r *Run) Change(c Change) error {
	if err := c.Check(); err != nil {
		return fmt.Errorf("%w: %w", ErrOptions, err)
	}
	return r.ask(c)
}

// Requests returns the open changes of the run: a pause until
// a resume, a checkpoint until it is written, a stop until the run has ended.
// They survive the failure of a worker: the next attempt of the run gets them before it trains.
func (r *Run) Requests() []Change {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.requests.List()
}

// ask passes a change to the attempt in progress. Between two attempts it is kept for the next
// one.
func (r *Run) ask(c Change) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	req, err := r.requests.Add(c)
	if err != nil {
		return err
	}
	if r.gap.between {
		if c.Kind == event.ChangeStop && c.Step == 0 {
			r.gap.cut = true
			r.gap.interrupt()
		}
		return nil
	}
	r.requests.Given()
	r.inner.Ask(req)
	return nil
}

// request is ask for changes that cannot be rejected: only one of each kind is open at a time.
func (r *Run) request(kind ChangeKind) { _ = r.ask(Change{Kind: kind}) }

// Pause pauses the run at the end of its step, until Resume.
func (r *Run) Pause() { r.request(event.ChangePause) }

// Resume continues a paused run.
func (r *Run) Resume() { r.request(event.ChangeResume) }

// Checkpoint requests a checkpoint at the end of the step.
func (r *Run) Checkpoint() { r.request(event.ChangeCheckpoint) }

// Stop stops the run at the end of its step, with a checkpoint. If a worker has failed, the
// run stops with its last checkpoint, if it has one.
func (r *Run) Stop() { r.request(event.ChangeStop) }

// Kill ends the run at once, without a checkpoint.
func (r *Run) Kill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.killed = true
	if r.gap.between {
		r.gap.cut = true
		r.gap.interrupt()
		return
	}
	r.inner.Kill()
}

// gap is the time between two attempts.
type gap struct {
	between   bool   // an attempt has ended, and the next has not started
	interrupt func() // ends the wait for workers
	cut       bool   // the next attempt must end, although it has not started yet
}

// wait returns a context that also ends when the next attempt must not start.
func (r *Run) wait(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gap.interrupt = cancel; r.gap.cut {
		cancel()
	}
	return ctx, cancel
}

// Record records the times of all actions in steps and validations that start within d from now. StepEvent.Trace then
// has them for all ranks, and Actions those of the step in progress. Another call extends the time. Recording changes no
// bit of the training and costs little time. Only run.trace_every writes trace.jsonl.
func (r *Run) Record(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if until := time.Now().Add(d); until.After(r.recordUntil) {
		r.recordUntil = until
	}
	if r.inner != nil && !r.gap.between {
		r.inner.Record(d)
	}
}

// Actions returns the recorded actions of the step or validation in progress, or of the last one. Status has the
// actions that run now. Actions never waits, even if the stages wait for each other.
func (r *Run) Actions() Actions {
	r.mu.Lock()
	inner := r.inner
	r.mu.Unlock()
	if inner == nil {
		return Actions{}
	}
	return inner.Actions()
}

// Info describes the run.
func (r *Run) Info() Info {
	if a := r.now(); a != nil {
		return a.Info
	}
	return Info{}
}

// Ping waits up to that long for the run's actors to answer, and says that they did not. A run that has ended, or that waits
// for workers before its next attempt, has none.
func (r *Run) Ping(within time.Duration) error {
	r.mu.Lock()
	inner := r.inner
	r.mu.Unlock()
	if inner == nil {
		return nil
	}
	return inner.Ping(within)
}

// now is the last attempt that has opened the folder; nil: none has yet.
func (r *Run) now() *attempt.Attempt {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.attempt
}

// Memory returns the tensor memory of the run's devices of a kind, "cpu" or "cuda", summed over the devices.
// It is zero if no rank is on such a device.
func (r *Run) Memory(kind string) tensorops.MemoryStats {
	if a := r.now(); a != nil {
		return a.Memory(kind)
	}
	return tensorops.MemoryStats{}
}

// GPUWork describes, for each GPU of this process, how the run's operations were launched:
// which matrix products use cuBLASLt, and which segments are CUDA graphs.
func (r *Run) GPUWork() []cuda.Work {
	if a := r.now(); a != nil {
		return a.GPUWork()
	}
	return nil
}

// StageMemory returns the peak tensor memory of each stage in bytes, by its name in Status, such as
// "stage 1 (tp 0, dp 1)". It is nil if other processes compute the stages.
func (r *Run) StageMemory() map[string]int64 {
	if a := r.now(); a != nil {
		return a.StageMemory()
	}
	return nil
}

// RankMemory returns the peak tensor memory of each rank in bytes, as far as other
// processes have reported it. It is nil if nothing is known.
func (r *Run) RankMemory() []int64 {
	if a := r.now(); a != nil {
		return a.RankMemory()
	}
	return nil
}

// Status returns what every actor is doing and waiting for, and the root of the waits. It never
// waits, whatever state the actors are in.
func (r *Run) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := Status{Time: time.Now()}
	if r.inner != nil { // else a watcher asks before the start
		s = r.inner.Status()
	}
	s.Requests = r.requests.List()
	s.Step, s.Steps = r.step, int64(r.cfg.Run.Steps)
	s.Remaining = r.meter.Remaining(int(s.Steps - s.Step))
	return s
}

// listen serves other processes that see and steer the run: see Options.Control. finish ends it.
func (r *Run) listen(events *Subscription) {
	server, err := control.Listen(r.cfg.Run.Out, r, events)
	if err != nil {
		events.Close()
		r.warn("the run does not listen, so engine status, stop and other commands can't find it: %v", err)
		return
	}
	r.control = server
}

// ErrEnded: the run has ended, so that a request can no longer take effect.
var ErrEnded = actors.ErrEnded

// ErrCanceled: another request canceled this one.
var ErrCanceled = errors.New("the request was canceled")

// Do requests a change and waits for it, where Change returns at once. It returns the step that the change belongs to:
//
//   - ChangePause: the run has paused after this step. A step that has ended means now.
//   - ChangeResume: the run has resumed after this step, or was not paused.
//   - ChangeCheckpoint: the checkpoint of this step is complete. If writing it fails, the run tries again, and Do waits.
//   - ChangeStop: the run has ended with this step. The error is that of Wait.
//   - ChangeRate: the change is in the journal, and has an effect after this step.
//
// The error is ErrOptions for an invalid change, ErrStep for a step at which the run can't stop, and ErrJournal if the journal
// has no room; ErrCanceled if a resume canceled a pause; ErrEnded if the run ended first; or that of ctx. The end of ctx does
// not take the request back.
func (r *Run) Do(ctx context.Context, c Change) (step int64, err error) {
	events := r.Subscribe() // before the request, to see its effect
	defer events.Close()
	if err := r.Change(c); err != nil {
		return 0, err
	}
	if c.Kind == ChangeStop && c.Step == 0 {
		return r.untilEnd(ctx)
	}
	r.mu.Lock()
	paused, now := r.pausedAt, r.step
	r.mu.Unlock()
	switch {
	case c.Kind == ChangePause && paused >= 0 && c.Step <= paused:
		return paused, nil
	case c.Kind == ChangeResume && paused < 0 && !r.over():
		return now, nil
	}
	w := waitedFor{Change: c, now: now}
	for {
		select {
		case e, more := <-events.Events():
			if !more {
				return r.overtaken(ctx, c)
			}
			if step, done, err := w.event(e); done {
				if err == nil && c.Kind == ChangeStop {
					return r.untilEnd(ctx)
				}
				return step, err
			}
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// untilEnd waits for the end of the run.
func (r *Run) untilEnd(ctx context.Context) (int64, error) {
	select {
	case <-r.done:
		return int64(r.result.Step), r.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// over reports whether the run has ended.
func (r *Run) over() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// overtaken returns the result of a request that the run's end overtook.
func (r *Run) overtaken(ctx context.Context, c Change) (int64, error) {
	step, err := r.untilEnd(ctx)
	switch {
	case c.Kind == ChangeStop || ctx.Err() != nil:
		return step, err
	case err != nil:
		return step, fmt.Errorf("%w at step %d, before the request took effect (%v): %w", ErrEnded, step, c, err)
	}
	return step, fmt.Errorf("%w at step %d, before the request took effect (%v)", ErrEnded, step, c)
}

// waitedFor is a change that Do waits for.
type waitedFor struct {
	Change
	now      int64 // the last step that has ended
	accepted bool  // its ChangeEvent was seen
	from     int64 // the step after which it takes effect
}

// event reports whether an event ends the wait.
func (w *waitedFor) event(e Event) (step int64, done bool, err error) {
	switch e := e.(type) {
	case StepEvent:
		w.now = int64(e.Step)
	case ChangeEvent:
		return w.change(e)
	case RestartEvent: // the next attempt gets the request again, maybe at an earlier step
		w.accepted = false
	case PauseEvent:
		return e.Step, w.Kind == ChangePause && e.Paused && e.Step >= w.Step || w.Kind == ChangeResume && !e.Paused, nil
	case CheckpointEvent:
		return e.Step, w.Kind == ChangeCheckpoint && !e.Weights && w.accepted && e.Step >= w.from, nil
	}
	return 0, false, nil
}

func (w *waitedFor) change(e ChangeEvent) (step int64, done bool, err error) {
	switch {
	case e.Err != nil:
		return 0, e.Change == w.Change, e.Err
	case e.Kind == ChangeResume && w.Kind == ChangePause && w.accepted:
		return 0, true, fmt.Errorf("%w: another request resumed the run", ErrCanceled)
	case !w.accepts(e):
		return 0, false, nil
	}
	w.accepted, w.from = true, e.Step
	return e.Step, w.Kind == ChangeRate || w.Kind == ChangeStop, nil
}

// accepts reports whether an event is about this change, or about another that has the same effect.
func (w *waitedFor) accepts(e ChangeEvent) bool {
	switch {
	case w.accepted || e.Kind != w.Kind:
		return false
	case w.Kind == ChangeRate:
		return e.LR == w.LR && e.MinLR == w.MinLR && e.Now == (w.Step == 0) && e.Step >= w.Step
	case w.Kind == ChangeStop:
		return e.Step == w.Step
	}
	const ahead = 2 // steps that the scheduler may be ahead of the events
	return w.Step > 0 && e.Step >= w.Step || w.Step == 0 && e.Step <= w.now+ahead
}
