package service

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// TestDo: a request that waits returns the step at which it took effect, or why it did not.
func TestDo(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	run := testrun.Start(t, testrun.NewConfig(t, out, append(testrun.Endless, tiny...)...))
	do := func(c troupe.Change) int64 {
		t.Helper()
		step, err := run.Do(t.Context(), c)
		if err != nil {
			t.Fatalf("%v: %v", c, err)
		}
		return step
	}
	testrun.Until(t, run, testrun.Step(2))
	paused := do(troupe.Change{Kind: troupe.ChangePause})
	if s := testrun.Snapshot(t, run, troupe.SnapshotOptions{}); s.Step() != paused {
		t.Errorf("paused at step %d, the weights are of step %d", paused, s.Step())
	} else if err := s.Close(); err != nil {
		t.Error(err)
	}
	if again := do(troupe.Change{Kind: troupe.ChangePause}); again != paused {
		t.Errorf("paused at step %d, and again at step %d", paused, again)
	}
	if saved := do(troupe.Change{Kind: troupe.ChangeCheckpoint}); saved != paused {
		t.Errorf("paused at step %d, the checkpoint is of step %d", paused, saved)
	} else if _, err := os.Stat(testrun.StepDir(out, int(saved))); err != nil {
		t.Error(err)
	}
	if step := do(troupe.Change{Kind: troupe.ChangeResume}); step != paused {
		t.Errorf("paused at step %d, resumed at step %d", paused, step)
	}
	if step := do(troupe.Change{Kind: troupe.ChangeResume}); step < paused {
		t.Errorf("a run that is not paused resumes at step %d", step)
	}
	if step := do(troupe.RateChange(1e-4)); step < paused {
		t.Errorf("the rate changes at step %d", step)
	}
	if _, err := run.Do(t.Context(), troupe.Change{Kind: troupe.ChangeStop, Step: 1}); !errors.Is(err, event.ErrStep) {
		t.Errorf("a stop in the past: %v", err)
	}
	if _, err := run.Do(t.Context(), troupe.Change{Kind: "faster"}); !errors.Is(err, troupe.ErrOptions) {
		t.Errorf("an unknown change: %v", err)
	}
	later := troupe.Change{Kind: troupe.ChangePause, Step: 900_000}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := run.Do(canceled, later); !errors.Is(err, context.Canceled) {
		t.Errorf("a wait that is canceled: %v", err)
	}
	if !slices.Contains(run.Requests(), later) {
		t.Errorf("the request is not open: %v", run.Requests())
	}
	later.Step++
	failed := make(chan error, 1)
	go func() { // ends with the resume
		_, err := run.Do(context.Background(), later)
		failed <- err
	}()
	testrun.Until(t, run, func(e troupe.ChangeEvent) bool { return e.Kind == troupe.ChangePause && e.Step == later.Step })
	do(troupe.Change{Kind: troupe.ChangeResume})
	if err := <-failed; !errors.Is(err, troupe.ErrCanceled) {
		t.Errorf("a pause that a resume cancels: %v", err)
	}
	if s := run.Status(); s.Step < paused || s.Steps != 1_000_000 || s.Remaining <= 0 {
		t.Errorf("the status is of step %d of %d, %v remain", s.Step, s.Steps, s.Remaining)
	}
	stopped := do(troupe.Change{Kind: troupe.ChangeStop})
	if result, _ := testrun.Finish(t, run); int64(result.Step) != stopped || !result.Stopped {
		t.Errorf("stopped at step %d: %+v", stopped, result)
	}
	if step := do(troupe.Change{Kind: troupe.ChangeStop}); step != stopped {
		t.Errorf("a stop after the end: step %d", step)
	}
	for _, kind := range []troupe.ChangeKind{troupe.ChangePause, troupe.ChangeResume, troupe.ChangeCheckpoint} {
		if step, err := run.Do(t.Context(), troupe.Change{Kind: kind}); !errors.Is(err, troupe.ErrEnded) || step != stopped {
			t.Errorf("%s after the end: step %d, %v", kind, step, err)
		}
	}
}
