package exampletest

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/telemetry"
)

// Layout is a way to distribute a training run.
type Layout struct {
	Name string
	Sets []string // keys as on the command line
}

// Steps is the number of steps of each run, with a validation and a checkpoint after Half of them.
const (
	Steps = 4
	Half  = 2
)

// Layouts are for models with at least eight layers.
func Layouts() []Layout {
	return []Layout{
		{"2 stages 1f1b", sets("stages=2")},
		{"3 stages 1f1b, recompute full", sets("stages=3", "recompute=full")},
		{"4 stages 1f1b", sets("stages=4")},
		{"4 stages gpipe", sets("stages=4", "schedule=gpipe")},
		{"4 stages zb-h1", sets("stages=4", "schedule=zb-h1")},
		{"2 stages zb-v", sets("stages=2", "schedule=zb-v")},
		{"4 stages zb-v, recompute full", sets("stages=4", "schedule=zb-v", "recompute=full")},
		{"2 stages interleaved", sets("stages=2", "chunks=2")},
		{"3 stages interleaved, recompute partial", sets("stages=3", "chunks=2", "microbatch_group_size=4", "recompute=partial",
			"recompute_keep=1")},
		{"2 stages auto, 4 chunks, recompute full", sets("stages=2", "chunks=4", "schedule=auto", "recompute=full")},
		{"1 stage, recompute full", sets("stages=1", "recompute=full")},
	}
}

func sets(keys ...string) (all []string) {
	for _, key := range keys {
		all = append(all, "pipeline."+key)
	}
	return all
}

// unpipelined is the layout whose results all others must match.
var unpipelined = []string{"pipeline.stages=1", "device.threads=1"}

// SameBits trains a configuration unpipelined and under each of the layouts: from the start and, for every other
// layout, from the middle of a run under the previous layout. more are keys for all runs. It returns the unpipelined
// run's folder.
func SameBits(t *testing.T, file string, layouts []Layout, more ...string) (want string) {
	t.Helper()
	want = filepath.Join(t.TempDir(), "want")
	Train(t, file, want, Steps, slices.Concat(more, unpipelined)...)
	before := unpipelined
	for i, l := range layouts {
		t.Run(l.Name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out")
			if i%2 == 1 {
				Train(t, file, out, Half, slices.Concat(more, before)...)
			}
			Train(t, file, out, Steps, slices.Concat(more, l.Sets)...)
			Same(t, want, out)
		})
		before = l.Sets
	}
	return want
}

// Train runs a configuration, or resumes its run, up to a step.
func Train(t testing.TB, file, out string, steps int, keys ...string) *troupe.Run {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Parse(file, text, append(Keys(out, steps), keys...), nil)
	if err != nil {
		t.Fatal(err)
	}
	run, err := troupe.Start(t.Context(), cfg, troupe.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for range run.Events() {
	}
	if result, err := run.Wait(); err != nil || result.Step != steps {
		t.Fatalf("the run ended at step %d: %v", result.Step, err)
	}
	return run
}

// Keys returns the keys that all runs set, as on the command line.
func Keys(out string, steps int) []string {
	return []string{
		"run.out=" + out, fmt.Sprintf("run.steps=%d", steps), fmt.Sprintf("run.eval_every=%d", Half),
		fmt.Sprintf("run.checkpoint_every=%d", Half), "run.eval_batches=1",
		"run.keep=0", "optimizer.warmup_steps=1", "optimizer.decay=constant", "optimizer.clip_norm=0.01", "device.kind=cpu",
	}
}

// Same compares the metrics of two runs line by line, and their checkpoints, bit by bit.
func Same(t testing.TB, want, got string) {
	t.Helper()
	a, b := figures(t, want), figures(t, got)
	if len(a) != Steps+1 { // and the validation before the first step
		t.Fatalf("%d lines of metrics, want %d", len(a), Steps+1)
	}
	for i := range a {
		if i >= len(b) || a[i] != b[i] {
			t.Fatalf("the metrics differ:\nwant %s\ngot  %s", a[i], b[min(i, len(b)-1)])
		}
	}
	for _, name := range []string{"model.safetensors", "optimizer.safetensors"} {
		in := filepath.Join("checkpoints", fmt.Sprintf("step-%08d", Steps), name)
		x, errX := os.ReadFile(filepath.Join(want, in))
		y, errY := os.ReadFile(filepath.Join(got, in))
		if err := cmp.Or(errX, errY); err != nil || !bytes.Equal(x, y) {
			t.Fatalf("%s differs, or can't be read: %v", in, err)
		}
	}
}

// figures returns the lines of a run's metrics without the values that depend on the clock.
func figures(t testing.TB, out string) (lines []string) {
	t.Helper()
	all, err := telemetry.Read(filepath.Join(out, "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	bits := func(v *float64) string {
		if v == nil {
			return "-"
		}
		return fmt.Sprintf("%x (%g)", math.Float64bits(*v), *v)
	}
	for _, r := range all {
		if r.Step > 0 && (r.Loss == nil || r.GradNorm == nil || *r.GradNorm <= 0.01 || r.Skipped) {
			t.Fatalf("step %d was not clipped, so that its norm does not count", r.Step)
		}
		lines = append(lines, fmt.Sprintf("step %d: loss %s, val_loss %s, grad_norm %s, metrics %v, %v", r.Step, bits(r.Loss), bits(r.ValLoss),
			bits(r.GradNorm), r.Metrics, r.ValMetrics))
	}
	return lines
}
