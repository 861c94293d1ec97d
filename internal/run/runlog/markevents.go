package runlog

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/telemetry"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// Event notes an event that people look for later; step is the one that has ended last.
func (m *Marks) Event(e event.Event, step int64) error {
	if _, ok := e.(event.StepEvent); ok {
		return m.did()
	}
	if c, ok := e.(event.CheckpointEvent); ok { // a folder may be moved with its events
		c.Dir = path.Join(checkpoint.StoreName, filepath.Base(c.Dir))
		e = c
	}
	if one, ok := event.MarkOf(e, int(step)); ok {
		return m.add(one)
	}
	return nil
}

// Begin notes that an attempt begins, after the marks that waited for its folder. changed are the keys of the
// configuration that differ from those of the last start.
func (m *Marks) Begin(w *telemetry.MarkWriter, step int64, resumes bool, changed string) error {
	err := m.open(w, step)
	if resumes {
		if changed != "" {
			changed += "; "
		}
		m.resume(newMark(step, telemetry.MarkResume, fmt.Sprintf("resumed from checkpoint step %d; %s%s", step, changed, environment())))
		return err
	}
	return errors.Join(err, m.Add(step, telemetry.MarkStart, environment()))
}

// End notes how a run with this number of steps has ended.
func (m *Marks) End(out actors.Outcome, steps int) error {
	if out.Err == nil && m.idle() {
		return nil
	}
	return m.Event(event.EndEvent{Err: out.Err, Result: event.Result{Step: int(out.State.Step), Steps: steps, Stopped: out.Stopped,
		Early: out.Early, BestStep: int(out.State.BestStep)}}, out.State.Step)
}
