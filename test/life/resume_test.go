package life

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
	"github.com/troupe-ml/troupe/tensorops/cpu"
)

// TestConflicts: whatever decides the numbers must be as it was; the error names
// the key and both values.
func TestConflicts(t *testing.T) {
	out := testrun.Trained(t)
	for _, tt := range []struct{ set, key, was, is string }{
		{"run.seed=8", "run.seed", "7", "8"},
		{"model.layers=5", "model.layers", "4", "5"},
		{"model.dropout=0.2", "model.dropout", "0.1", "0.2"},
		{"model.family=llama", "model.family", "gpt2", "llama"},
		{"data.tokenizer=chars", "data.tokenizer", "bytes", "chars"},
		{"batch.sequences=16", "batch.sequences", "8", "16"},
		{"batch.microbatch=2", "batch.microbatch", "1", "2"},
		{"optimizer.clip_norm=1", "optimizer.clip_norm", "0.05", "1.0"},
		{"optimizer.weight_decay=0.5", "optimizer.weight_decay", "0.1", "0.5"},
	} {
		t.Run(tt.key, func(t *testing.T) {
			testrun.Refused(t, testrun.NewConfig(t, out, tt.set), troupe.Options{}, troupe.ErrOutput, "--set "+tt.set+": "+tt.key, tt.was, tt.is,
				out)
		})
	}
}

// TestFree: how the work is spread, how long it goes on and what is reported may
// differ, and the folder's configuration follows.
func TestFree(t *testing.T) {
	out := testrun.Trained(t)
	sets := []string{"run.steps=8", "run.name=again", "run.eval_every=1", "run.eval_batches=1", "run.checkpoint_every=1", "run.keep=2",
		"run.log_every=3", "run.stall_after_s=5", "pipeline.stages=2", "pipeline.chunks=2", "pipeline.microbatch_group_size=4",
		"pipeline.recompute=full", "device.threads=1"}
	result, events := testrun.Train(t, out, sets...)
	if result.Step != 8 || len(events) == 0 {
		t.Fatalf("it ended at step %d after %d events", result.Step, len(events))
	}
	if text := testrun.Read(t, filepath.Join(out, "config.toml")); text != string(testrun.NewConfig(t, out, sets...).TOML()) {
		t.Errorf("the folder's config.toml is\n%s", text)
	}
	for i, r := range testrun.Records(t, out) {
		if r.Step != i {
			t.Fatalf("line %d is of step %d", i+1, r.Step)
		}
	}
	if left, err := os.ReadDir(filepath.Join(out, "checkpoints")); err != nil || len(left) > 2+3 { // keep, best, and the pointers
		t.Errorf("%v is left, %v", left, err)
	}
}

// TestResumeNothingLeft: a run that has all its steps ends at once, and says
// what it has.
func TestResumeNothingLeft(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	first, _ := testrun.Train(t, out)
	before := testrun.Tree(t, out)
	again, events := testrun.Train(t, out)
	if again != first {
		t.Errorf("it ended with %+v, before with %+v", again, first)
	}
	if len(events) != 0 {
		t.Errorf("events: %v", events)
	}
	if after := testrun.Tree(t, out); after != before {
		t.Errorf("the folder had\n%sit has\n%s", before, after)
	}
	if fewer, _ := testrun.Train(t, out, "run.steps=4"); fewer.Step != 6 {
		t.Errorf("with fewer steps than it has, it is at step %d", fewer.Step)
	}
	if after := testrun.Tree(t, out); after != before {
		t.Errorf("after a start with fewer steps the folder had\n%sit has\n%s", before, after)
	}
}

// TestWarmupByDefault: a warm-up that nobody gave follows the run's length, and
// stays what it was when the length changes. A start says so where it is longer than the run.
func TestWarmupByDefault(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	withSteps := func(steps string) *config.Config {
		text := strings.Replace(testrun.SmallRun, "warmup_steps = 2\n", "", 1)
		cfg, err := config.Parse("small.toml", []byte(text), []string{"run.out=" + out, "run.steps=" + steps}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	testrun.Finish(t, testrun.Start(t, withSteps("30")))
	_, events := testrun.Finish(t, testrun.Start(t, withSteps("2")))
	var warned []string
	for _, w := range testrun.EventsOf[troupe.WarningEvent](events) {
		warned = append(warned, w.Text)
	}
	if text := strings.Join(warned, "\n"); !strings.Contains(text, "warmup_steps = 3 is more than run.steps = 2") ||
		!strings.Contains(text, "optimizer.warmup_steps: the run keeps 3, not the default 0") {
		t.Errorf("with fewer steps it warns %s", text)
	}
	testrun.Finish(t, testrun.Start(t, withSteps("33")))
	if text := testrun.Read(t, filepath.Join(out, "config.toml")); !strings.Contains(text, "warmup_steps = 3\n") {
		t.Errorf("the warm-up is forgotten:\n%s", text)
	}
}

// TestOwnConfig: the resolved configuration in the output folder is one to run.
func TestOwnConfig(t *testing.T) {
	for _, sets := range [][]string{nil, {"pipeline.stages=2"}, {"pipeline.stages=2", "pipeline.chunks=2"}} {
		out := testrun.Trained(t, sets...)
		cfg, err := config.Load(filepath.Join(out, "config.toml"), []string{"run.steps=7"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if result, _ := testrun.Finish(t, testrun.Start(t, cfg)); result.Step != 7 {
			t.Errorf("it ended at step %d", result.Step)
		}
	}
}

// TestBeforeFirstCheckpoint: what a crash leaves before there is any checkpoint
// is begun again.
func TestBeforeFirstCheckpoint(t *testing.T) {
	want := testrun.Trained(t)
	for name, prepare := range map[string]func(out string){
		"while config.toml was written": func(out string) {
			for _, name := range []string{"config.toml", "metrics.jsonl", "events.jsonl", "checkpoints"} {
				if err := os.RemoveAll(filepath.Join(out, name)); err != nil {
					t.Fatal(err)
				}
			}
			testrun.Write(t, filepath.Join(out, ".tmp-config.toml"), "[run]\nna")
		},
		"in the first steps": func(out string) {
			if err := os.RemoveAll(filepath.Join(out, "checkpoints")); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			out := testrun.CopyTree(t, want)
			prepare(out)
			testrun.Train(t, out)
			testrun.SameFigures(t, want, out)
			testrun.SameState(t, want, out, 6)
			noneLeft(t, out)
		})
	}
}

// TestFresh: a fresh start takes a folder that isn't there, or is empty.
func TestFresh(t *testing.T) {
	out := t.TempDir()
	for range 2 {
		run, err := troupe.Start(context.Background(), testrun.NewConfig(t, out), troupe.Options{Fresh: true})
		if err != nil {
			t.Fatal(err)
		}
		result, _ := testrun.Finish(t, run)
		if result.Step != 6 || math.IsNaN(result.FirstValLoss) {
			t.Errorf("it ended with %+v", result)
		}
		out = filepath.Join(t.TempDir(), "new", "folder")
	}
}

// TestOtherKernels: a run that goes on with other kernels says what that means.
func TestOtherKernels(t *testing.T) {
	if len(cpu.Paths()) == 1 {
		t.Skip("this machine has plain Go alone")
	}
	out := testrun.Trained(t, "device.kernels=go")
	_, events := testrun.Train(t, out, "run.steps=7")
	warnings := testrun.EventsOf[troupe.WarningEvent](events)
	if len(warnings) != 1 || !strings.Contains(warnings[0].Text, "trained with go kernels") {
		t.Errorf("warnings %v", warnings)
	}
}
