package life

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// TestDivergedEnds: a run whose weights are of no use any more ends with an error, keeps the last
// checkpoint from before, and resumes from it when it is started again.
func TestDivergedEnds(t *testing.T) {
	base := []string{"optimizer.name=sgd", "optimizer.lr=1e6", "optimizer.warmup_steps=0", "optimizer.clip_norm=0", "run.eval_every=0",
		"run.steps=30", "run.checkpoint_every=1", "run.keep=1", "pipeline.stages=2"}
	for _, tt := range []struct {
		name        string
		sets        []string
		first, last int64 // skipped steps; 0: the run ends
	}{
		{"by default", nil, 0, 10},
		{"after 3", []string{"run.max_skipped_steps=3"}, 0, 3},
		{"a grid", []string{"run.max_skipped_steps=3", "parallel.data=2", "parallel.zero=1"}, 0, 3},
		{"never", []string{"run.max_skipped_steps=0"}, 0, 0},
		{"no checkpoint", []string{"run.max_skipped_steps=3", "run.checkpoint_every=0"}, 0, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out")
			cfg := testrun.NewConfig(t, out, append(slices.Clone(base), tt.sets...)...)
			run, err := troupe.Start(t.Context(), cfg, troupe.Options{})
			if err != nil {
				t.Fatal(err)
			}
			res, err := run.Wait()
			if tt.last == 0 {
				if err != nil || res.Step != 30 {
					t.Fatalf("it ended at step %d: %v", res.Step, err)
				}
				return
			}
			var d *troupe.DivergedError
			if !errors.As(err, &d) || d.Last-d.First+1 != tt.last || int64(res.Step) != d.Last {
				t.Fatalf("it ended at step %d: %v", res.Step, err)
			}
			if n := len(testrun.Records(t, out)); n != res.Step+1 && n != res.Step { // and the validation before training
				t.Errorf("metrics.jsonl has %d lines at step %d", n, res.Step)
			}
			if tt.name == "no checkpoint" {
				if d.Checkpoint != 0 || !strings.Contains(err.Error(), "no checkpoint was written before them") {
					t.Errorf("%v", err)
				}
				return
			}
			if steps, err := testrun.OpenStore(t, out).Steps(); err != nil || !slices.Equal(steps, []int{int(d.First) - 1}) ||
				d.Checkpoint != d.First-1 {
				t.Errorf("steps %d to %d were skipped, and the checkpoints are of %v (%v); the error names %d", d.First, d.Last, steps, err,
					d.Checkpoint)
			}
			// With a rate that it can learn by, it resumes from there.
			again := testrun.NewConfig(t, out, append(slices.Clone(base), tt.sets...)...)
			again.Run.Steps = int(d.First) + 1
			run, err = troupe.Start(t.Context(), again, troupe.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if run.Info().ResumedAt != int(d.Checkpoint) {
				t.Errorf("it resumed at step %d", run.Info().ResumedAt)
			}
			if _, err := run.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestKilledLine: a step that the run's state counts has its line, also where the run is killed while it
// is validated.
func TestKilledLine(t *testing.T) {
	for i := range 5 {
		out := filepath.Join(t.TempDir(), "out")
		run := testrun.Start(t, testrun.NewConfig(t, out, "run.steps=1000", "run.eval_every=1", "run.eval_batches=20", "run.checkpoint_every=0"))
		n := 0
		for e := range run.Events() {
			if _, is := e.(troupe.StepEvent); is {
				if n++; n == 3+i {
					time.Sleep(time.Duration(i) * 10 * time.Millisecond) // of a step and its validation, which take 20 to 100
					run.Kill()
				}
			}
		}
		res, err := run.Wait()
		if !errors.Is(err, actors.ErrKilled) {
			t.Fatal(err)
		}
		if all := testrun.Records(t, out); all[len(all)-1].Step != res.Step {
			t.Errorf("killed at step %d, the last line is of step %d", res.Step, all[len(all)-1].Step)
		}
	}
}

// TestWorseThanBefore: a validation that is worse than that before training is a warning, and the run goes on.
func TestWorseThanBefore(t *testing.T) {
	result, events := testrun.Train(t, filepath.Join(t.TempDir(), "out"), "optimizer.lr=1", "optimizer.warmup_steps=0", "run.eval_every=1")
	var warned int
	for _, w := range testrun.EventsOf[troupe.WarningEvent](events) {
		if strings.Contains(w.Text, ", but before training it was ") {
			warned++
		}
	}
	if result.Step != 6 || result.LastValLoss <= result.FirstValLoss || warned != 1 {
		t.Errorf("it ended with %+v after %d warnings", result, warned)
	}
}
