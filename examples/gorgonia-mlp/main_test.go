package main

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/stages"
)

// asProgram makes the test binary the program, and so its workers' too.
const asProgram = "TROUPE_EXAMPLE_GORGONIA"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main() // does not return
	}
	stages.RegisterFamily("gorgonia-mlp", family)
	os.Exit(m.Run())
}

// digits are the configuration's data, seen from here.
var digits = []string{"--set", "data.train=['../digits/digits-train.csv']", "--set", "data.val=['../digits/digits-test.csv']"}

// record is what is compared of a line of metrics.jsonl.
type record struct {
	Loss       *float64           `json:"loss"`
	ValLoss    *float64           `json:"val_loss"`
	GradNorm   *float64           `json:"grad_norm"`
	ValMetrics map[string]float64 `json:"val_metrics"`
}

// train runs the program, and returns what it has written down.
func train(t *testing.T, out string, args ...string) (records []record) {
	t.Helper()
	args = append(append([]string{"run", "config.toml", "--quiet", "--set", "run.out=" + out}, digits...), args...)
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), asProgram+"=1", "GORACE=atexit_sleep_ms=0")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, &errs)
	}
	text, err := os.ReadFile(filepath.Join(out, "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var r record
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		records = append(records, r)
	}
	return records
}

// bits are the losses and norms to the last bit.
func bits(records []record) (all []uint64) {
	for _, r := range records {
		for _, v := range []*float64{r.Loss, r.ValLoss, r.GradNorm} {
			if v != nil {
				all = append(all, math.Float64bits(*v))
			}
		}
	}
	return all
}

// TestBits: pipelines of graphs, with 8 microbatches, have the losses of one graph without a
// pipeline.
func TestBits(t *testing.T) {
	short := []string{"--set", "run.steps=40", "--set", "run.eval_every=20", "--set", "optimizer.warmup_steps=4", "--set",
		"run.checkpoint_every=20"}
	sets := func(keys ...string) (args []string) {
		args = slices.Clone(short)
		for _, key := range keys {
			args = append(args, "--set", key)
		}
		return args
	}
	alone := bits(train(t, filepath.Join(t.TempDir(), "run"), sets("pipeline.stages=1", "model.options=['whole']")...))
	if len(alone) != 40*2+3 {
		t.Fatalf("%d figures", len(alone))
	}
	for name, args := range map[string][]string{
		"1 stage":         sets("pipeline.stages=1"),
		"1f1b":            sets("pipeline.schedule=1f1b"),
		"gpipe":           sets("pipeline.schedule=gpipe"), // 8 in flight
		"interleaved":     sets("pipeline.schedule=interleaved", "pipeline.stages=2", "pipeline.chunks=2"),
		"zb-h1":           sets("pipeline.schedule=zb-h1"),
		"zb-v":            sets("pipeline.schedule=zb-v", "pipeline.stages=2"),
		"recomputed":      sets("pipeline.recompute=full"),
		"three processes": append(sets(), "--local-cluster", "3"),
	} {
		t.Run(name, func(t *testing.T) {
			if got := bits(train(t, filepath.Join(t.TempDir(), "run"), args...)); !slices.Equal(got, alone) {
				t.Errorf("the losses and norms are other than those of one graph")
			}
		})
	}
	t.Run("resumed", func(t *testing.T) {
		out := filepath.Join(t.TempDir(), "run")
		train(t, out, append(sets("pipeline.stages=1"), "--set", "run.steps=40")...)
		if err := os.RemoveAll(filepath.Join(out, "checkpoints", "step-00000040")); err != nil {
			t.Fatal(err)
		}
		// The newest that is left is of step 20.
		if got := bits(train(t, out, append(sets("pipeline.stages=3"), "--from-step", "20")...)); !slices.Equal(got, alone) {
			t.Errorf("the losses and norms are other than those of one graph")
		}
	})
}

// TestAccuracy: the classifier learns.
func TestAccuracy(t *testing.T) {
	records := train(t, filepath.Join(t.TempDir(), "run"))
	if got := records[len(records)-1].ValMetrics["accuracy"]; got < 0.97 {
		t.Errorf("%.2f %% of the test's digits are right, it should be 98 to 99 %%", 100*got)
	}
}

// TestGrowth: a run of 1,000 steps has as much memory and as many goroutines at its end as
// near its beginning.
func TestGrowth(t *testing.T) {
	sets := []string{"run.steps=1000", "run.out=" + filepath.Join(t.TempDir(), "run"), "run.eval_every=0", "run.checkpoint_every=0",
		"pipeline.schedule=gpipe"}
	for i := 1; i < len(digits); i += 2 {
		sets = append(sets, digits[i])
	}
	cfg, err := config.Load("config.toml", sets, nil)
	if err != nil {
		t.Fatal(err)
	}
	type state struct{ heap, goroutines uint64 }
	measure := func() state {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return state{m.HeapAlloc + m.StackInuse, uint64(runtime.NumGoroutine())}
	}
	run, err := troupe.Start(t.Context(), cfg, troupe.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var early state
	for e := range run.Events() {
		if s, ok := e.(troupe.StepEvent); ok && s.Step == 100 {
			run.Pause()
		}
		if p, ok := e.(troupe.PauseEvent); ok && p.Paused {
			early = measure()
			run.Resume()
		}
	}
	if _, err := run.Wait(); err != nil {
		t.Fatal(err)
	}
	late := measure()
	if early.heap == 0 || late.heap > early.heap+4<<20 || late.goroutines > early.goroutines {
		t.Errorf("%d bytes and %d goroutines when it is over, %d and %d at step 100", late.heap, late.goroutines, early.heap, early.goroutines)
	}
}
