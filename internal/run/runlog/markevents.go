package runlog

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/telemetry"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// Event notes an event that people look for later; step is the one that has ended last.
func (m *Marks) Event(e event.Event, step int64) error {
	switch e := e.(type) {
	case event.StepEvent:
		return m.did()
	case event.CheckpointEvent:
		text := fmt.Sprintf("%s, %.1f s", filepath.Base(e.Dir), e.Took.Seconds())
		if e.Best {
			text += ", the best so far"
		}
		return m.Add(e.Step, telemetry.MarkCheckpoint, text)
	case event.PauseEvent:
		kind := telemetry.MarkContinue
		if e.Paused {
			kind = telemetry.MarkPause
		}
		return m.Add(e.Step, kind, "")
	case event.ChangeEvent:
		switch {
		case e.Err != nil:
		case e.Kind == event.ChangeRate:
			return m.Add(step, telemetry.MarkRate, fmt.Sprintf("from step %d on, its peak %g and its end %g", e.Step+1, e.LR, e.MinLR))
		case e.Kind == event.ChangeStop:
			return m.Add(step, telemetry.MarkStop, fmt.Sprintf("after step %d", e.Step))
		}
	case event.RestartEvent:
		return m.Add(step, telemetry.MarkRestart, fmt.Sprintf("behind step %d, %d of at most %d since the last checkpoint: %v", step, e.Restart, e.Most, e.Err))
	case event.StallEvent:
		return m.Add(step, telemetry.MarkStall, fmt.Sprintf("nothing has moved for %.1f s\n%s", e.Quiet.Seconds(), e.Status.Explain()))
	case event.WarningEvent:
		return m.Add(step, telemetry.MarkWarning, e.Text)
	}
	return nil
}

// Begin notes that an attempt begins, after the marks that waited for its folder.
func (m *Marks) Begin(w *telemetry.MarkWriter, step int64, resumes bool) error {
	err := m.open(w, step)
	if resumes {
		m.resume(newMark(step, telemetry.MarkResume, fmt.Sprintf("from the checkpoint of step %d; %s", step, environment())))
		return err
	}
	return errors.Join(err, m.Add(step, telemetry.MarkStart, environment()))
}

// End notes how the run has ended.
func (m *Marks) End(out actors.Outcome) error {
	if out.Err == nil && m.idle() {
		return nil
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
	return m.Add(out.State.Step, telemetry.MarkEnd, text)
}
