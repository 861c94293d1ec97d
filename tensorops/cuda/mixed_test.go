//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// TestTrainsBesideTheCPU: a pipeline of which some ranks compute on the stand-in and some
// on the CPU has the CPU's losses, within what another order of the same sums makes of
// them, and the same bits run after run.
func TestTrainsBesideTheCPU(t *testing.T) {
	if testing.Short() {
		t.Skip("it emulates every thread of a GPU")
	}
	tolerance := 1e-5
	if os.Getenv(realGPU) == "" {
		useStandIn(t)
	} else {
		tolerance = 1e-3 // of the hardware's exponentials
	}
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	const gpuFirst, cpuFirst = `["cuda", "cpu"]`, `["cpu", "cuda"]`
	for _, c := range []struct {
		ranks, family string
		long          bool
		sets          []string
	}{
		{gpuFirst, "gpt2", false, []string{"device.dtype=bfloat16", "device.residual=bfloat16"}},
		{cpuFirst, "llama", true, []string{"device.dtype=bfloat16"}},
		{gpuFirst, "gpt2", true, nil}, // its embeddings are tied: their gradients cross
		{cpuFirst, "gpt2", false, nil},
		{gpuFirst, "llama", true, nil},
		{cpuFirst, "llama", false, []string{"pipeline.recompute=full"}},
		{gpuFirst, "gpt2", false, []string{"pipeline.schedule=zb-v", "batch.microbatch=1"}}, // begins steps ahead
		{cpuFirst, "gpt2", true, []string{"pipeline.schedule=zb-v", "pipeline.recompute=full"}},
		{gpuFirst, "gpt2", true, []string{"pipeline.schedule=dualpipev", "batch.microbatch=1"}}, // has overlapped pairs
		{gpuFirst, "llama", true, []string{"model.mtp_layers=1", "model.tie_embeddings=true"}},
		{`["cuda", "cpu", "cuda"]`, "gpt2", false, nil},
	} {
		if c.long && !long && os.Getenv(realGPU) == "" {
			continue
		}
		sets := append([]string{"model.family=" + c.family, fmt.Sprintf("pipeline.stages=%d", 1+strings.Count(c.ranks, ","))}, c.sets...)
		mixed := append(slices.Clone(sets), "device.ranks="+c.ranks)
		want := train(t, append(sets, "device.kind=cpu")...)
		run := func() []float64 {
			losses, info, _ := trainIn(t, filepath.Join(t.TempDir(), "out"), mixed...)
			for _, kind := range []string{"cuda", "cpu"} {
				if !strings.Contains(info.Device, kind) || !strings.Contains(info.Kernels, kind+"-") {
					t.Errorf("%q: the run is on %s and computes with %s", mixed, info.Device, info.Kernels)
				}
			}
			return losses
		}
		got := run()
		tolerance := tolerance
		if slices.Contains(c.sets, "device.dtype=bfloat16") {
			tolerance = 1e-3 // of numbers that are rounded to one side or the other
		}
		near(t, fmt.Sprint(mixed), got, want, tolerance)
		if again := run(); !slices.Equal(again, got) {
			t.Errorf("%q: losses %v, once more %v", mixed, got, again)
		}
	}
}

// near compares losses.
func near(t *testing.T, what string, got, want []float64, tolerance float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d losses, on the CPU %d", what, len(got), len(want))
	}
	for i, loss := range got {
		if !(math.Abs(loss-want[i]) <= tolerance*want[i]) {
			t.Errorf("%s, loss %d: %v, on the CPU %v", what, i+1, loss, want[i])
		}
	}
}

// TestGoesOnElsewhere: what was trained on devices of several kinds goes on from its
// checkpoint on any.
func TestGoesOnElsewhere(t *testing.T) {
	if testing.Short() {
		t.Skip("it emulates every thread of a GPU")
	}
	tolerance := 1e-5
	if os.Getenv(realGPU) == "" {
		useStandIn(t)
	} else {
		tolerance = 1e-3
	}
	const mixed = `device.ranks=["cuda", "cpu"]`
	want := train(t, "device.kind=cpu", "optimizer.decay=constant")
	for name, parts := range map[string][2][]string{
		"mixed, CPU": {{"pipeline.stages=2", mixed}, {"device.kind=cpu"}},
		"CPU, mixed": {{"device.kind=cpu"}, {"pipeline.stages=2", "pipeline.schedule=zb-v", mixed}},
	} {
		out := filepath.Join(t.TempDir(), "out")
		// Nothing follows the number of steps, so that a run may be told fewer at first.
		first, _, _ := trainIn(t, out, append(parts[0], "run.steps=2", "optimizer.decay=constant")...)
		second, info, _ := trainIn(t, out, append(parts[1], "optimizer.decay=constant")...)
		if info.ResumedAt != 2 {
			t.Errorf("%s: it goes on from step %d, want 2", name, info.ResumedAt)
		}
		near(t, name, append(first, second...), want, tolerance)
	}
}
