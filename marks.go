package troupe

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/internal/base/clock"
	"github.com/troupe-ml/troupe/telemetry"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// marks are a run's events.jsonl: what happened to it, for those who look at its curves. Between
// two attempts, and before the folder is open, they wait.
type marks struct {
	mu      sync.Mutex
	w       *telemetry.MarkWriter // nil: the folder is not open
	waiting []telemetry.Mark
	failed  bool            // one could not be written
	resumed *telemetry.Mark // that the run goes on, until it has done anything; nil: it has
}

// add writes a mark. Only the first error counts: the run goes on without marks.
func (m *marks) add(one telemetry.Mark) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return errors.Join(m.goesOn(), m.addOne(one))
}

// resume holds the mark that the run goes on: one that finds nothing left to do leaves none.
func (m *marks) resume(one telemetry.Mark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.resumed = &one
}

// did says that the run has done something.
func (m *marks) did() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.goesOn()
}

// idle reports whether the run has gone on, and done nothing since.
func (m *marks) idle() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.resumed != nil
}

// goesOn writes the mark that was held. mu is held.
func (m *marks) goesOn() error {
	if m.resumed == nil {
		return nil
	}
	one := *m.resumed
	m.resumed = nil
	return m.addOne(one)
}

func (m *marks) addOne(one telemetry.Mark) error {
	if m.w == nil {
		if len(m.waiting) < limitMarks {
			m.waiting = append(m.waiting, one)
		}
		return nil
	}
	return m.write(one)
}

// write appends to the file. mu is held.
func (m *marks) write(one telemetry.Mark) error {
	if m.failed {
		return nil
	}
	err := m.w.Write(one)
	m.failed = err != nil
	return err
}

// open takes the file, and writes what waits for it: that belongs to the step that the run goes on from
// now, at most, so that it is not cut when the run goes on from there once more.
func (m *marks) open(w *telemetry.MarkWriter, step int64) (err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.w, m.failed = w, false
	for _, one := range m.waiting {
		one.Step = min(one.Step, int(step))
		err = errors.Join(err, m.write(one))
	}
	m.waiting = nil
	return err
}

func (m *marks) close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.w == nil {
		return nil
	}
	w := m.w
	m.w = nil
	return w.Close()
}

// mark notes what has happened when so many steps had ended. It may wait for the disk.
func (r *Run) mark(step int64, kind, text string) {
	r.unmarked(r.marks.add(markNow(step, kind, text)))
}

func markNow(step int64, kind, text string) telemetry.Mark {
	return telemetry.Mark{TimeMS: clock.Now().UnixMilli(), Step: int(step), Kind: kind, Text: text}
}

// unmarked says that marks can't be written. The run goes on.
func (r *Run) unmarked(err error) {
	if err != nil {
		r.publish(WarningEvent{Text: fmt.Sprintf("what happens to the run is no longer written: %v", err)})
	}
}

// markEvent notes an event that people look for later.
func (r *Run) markEvent(e Event) {
	step := r.ended()
	switch e := e.(type) {
	case StepEvent:
		r.unmarked(r.marks.did())
	case CheckpointEvent:
		text := fmt.Sprintf("%s, %.1f s", filepath.Base(e.Dir), e.Took.Seconds())
		if e.Best {
			text += ", the best so far"
		}
		r.mark(e.Step, telemetry.MarkCheckpoint, text)
	case PauseEvent:
		kind := telemetry.MarkContinue
		if e.Paused {
			kind = telemetry.MarkPause
		}
		r.mark(e.Step, kind, "")
	case ChangeEvent:
		switch {
		case e.Err != nil:
		case e.Kind == event.ChangeRate:
			r.mark(step, telemetry.MarkRate, fmt.Sprintf("from step %d on, its peak %g and its end %g", e.Step+1, e.LR, e.MinLR))
		case e.Kind == event.ChangeStop:
			r.mark(step, telemetry.MarkStop, fmt.Sprintf("after step %d", e.Step))
		}
	case RestartEvent:
		r.mark(step, telemetry.MarkRestart, fmt.Sprintf("behind step %d, %d of at most %d since the last checkpoint: %v", step, e.Restart, e.Most, e.Err))
	case StallEvent:
		r.mark(step, telemetry.MarkStall, fmt.Sprintf("nothing has moved for %.1f s\n%s", e.Quiet.Seconds(), e.Status.Explain()))
	case WarningEvent:
		r.mark(step, telemetry.MarkWarning, e.Text)
	}
}

// ended is the step that has ended last.
func (r *Run) ended() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.step
}

// markBegin notes that an attempt begins, behind what waited for its folder.
func (r *Run) markBegin(w *telemetry.MarkWriter, step int64, resumes bool) {
	r.unmarked(r.marks.open(w, step))
	if resumes {
		r.marks.resume(markNow(step, telemetry.MarkResume, fmt.Sprintf("from the checkpoint of step %d; %s", step, environment())))
	} else {
		r.mark(step, telemetry.MarkStart, environment())
	}
}

// markEnd notes how the run has ended.
func (r *Run) markEnd(out actors.Outcome) {
	if out.Err == nil && r.marks.idle() {
		return
	}
	text := "all steps are done"
	switch {
	case out.Err != nil:
		text = "it failed: " + out.Err.Error()
	case out.Early:
		text = "before the last step, since the validation loss has not become better for run.patience validations"
	case out.Stopped:
		text = "stopped by request"
	}
	r.mark(out.State.Step, telemetry.MarkEnd, text)
}
