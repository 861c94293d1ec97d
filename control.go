package troupe

import (
	"fmt"
	"time"

	"github.com/troupe-ml/troupe/internal/run/attempt"
	"github.com/troupe-ml/troupe/telemetry/event"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cuda"
)

// Change makes a change, or journals it for the step that it names: a ChangeEvent tells of
// it. It takes effect again when the run goes on from an older checkpoint.
func (r *Run) Change(c Change) error {
	if err := c.Check(); err != nil {
		return fmt.Errorf("%w: %w", ErrOptions, err)
	}
	return r.ask(c)
}

// Requests are the changes that were asked of the run and are not done yet: a pause is one until
// the run is told to resume, a checkpoint until it is written, a stop until the run has ended.
// They outlast the loss of a process: the run is given them again before it trains on.
func (r *Run) Requests() []Change {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.requests.List()
}

// ask takes a change, and passes it to the attempt in progress. Between two attempts the next
// one is given it.
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

// wish is ask for what can't be refused: one of each is open at a time.
func (r *Run) wish(kind ChangeKind) { _ = r.ask(Change{Kind: kind}) }

// Pause holds the run at the end of its step; Resume lets it continue.
func (r *Run) Pause() { r.wish(event.ChangePause) }

// Resume lets a paused run continue.
func (r *Run) Resume() { r.wish(event.ChangeResume) }

// Checkpoint asks for a checkpoint at the end of the step.
func (r *Run) Checkpoint() { r.wish(event.ChangeCheckpoint) }

// Stop ends the run at the end of its step, with a checkpoint. Where a process was lost, the
// run ends at its last checkpoint, if there is one.
func (r *Run) Stop() { r.wish(event.ChangeStop) }

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

// Record times the actions of the steps and validations that begin within d from now, for those who watch:
// StepEvent.Trace is there then, for all ranks, and Actions has what is done of the step under way. Calling it again
// extends it. What is trained stays the same, to the bit, and it takes next to no time. Only run.trace_every writes trace.jsonl.
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

// Actions is what was recorded so far of the step or the validation under way, or between two of the
// last one; what runs now is in Status. It answers at any moment, also where the stages wait for each other.
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

// now is the last attempt that had the folder; nil: none has yet.
func (r *Run) now() *attempt.Attempt {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.attempt
}

// Memory is the tensor memory of the run's devices of a kind, "cpu" or "cuda", the sum of several;
// zeros if no rank is on one.
func (r *Run) Memory(kind string) tensorops.MemoryStats {
	if a := r.now(); a != nil {
		return a.Memory(kind)
	}
	return tensorops.MemoryStats{}
}

// GPUWork tells what each GPU of this process has put into its streams for the run, and how:
// which products are cuBLASLt's, which segments are graphs.
func (r *Run) GPUWork() []cuda.Work {
	if a := r.now(); a != nil {
		return a.GPUWork()
	}
	return nil
}

// StageMemory is the most tensor memory that each stage has taken at a time, in bytes, by its name in Status, such as
// "stage 1 (tp 0, dp 1)"; nil where other processes have them.
func (r *Run) StageMemory() map[string]int64 {
	if a := r.now(); a != nil {
		return a.StageMemory()
	}
	return nil
}

// RankMemory is the most tensor memory that each rank has taken at a time, in bytes, as far as other
// processes have told of theirs; nil where that is not known.
func (r *Run) RankMemory() []int64 {
	if a := r.now(); a != nil {
		return a.RankMemory()
	}
	return nil
}

// Status says what every actor is doing, and the root of what they wait for. It
// answers at any moment, whatever state the actors are in.
func (r *Run) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inner == nil { // a watcher asks before it has begun
		return Status{Time: time.Now(), Requests: r.requests.List()}
	}
	s := r.inner.Status()
	s.Requests = r.requests.List()
	return s
}
