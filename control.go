package troupe

import (
	"fmt"
	"time"

	"github.com/troupe-ml/troupe/internal/run/attempt"
	"github.com/troupe-ml/troupe/internal/run/control"
	"github.com/troupe-ml/troupe/telemetry/event"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cuda"
)

// Change requests a change, for now or for the step that it names. A ChangeEvent follows when the run has
// journaled or rejected it. If the run resumes from an older checkpoint, it repeats the change. The error is
// ErrOptions for an invalid change.
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
func (r *Run) listen() {
	server, err := control.Listen(r.cfg.Run.Out, r)
	if err != nil {
		r.warn("the run does not listen, so engine status, stop and other commands can't find it: %v", err)
		return
	}
	r.control = server
}
