//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/troupe-ml/troupe/tensorops/cuda"
)

// TestContextGroups: ranks on GPUs that share the positions of sequences have the CPU's losses, and the same bits on two stages: with
// windows, documents in one sequence, experts, and in bfloat16.
func TestContextGroups(t *testing.T) {
	if cuda.RaceDetector || testing.Short() {
		t.Skip("it emulates every thread of a GPU")
	}
	onGPUs(t, 2, false)
	experts := func(family string, more ...string) []string { return expertSets(family, "float32", more) }
	for i, c := range []struct {
		name      string
		sets      []string
		tolerance float64
	}{
		{"experts in groups", experts("qwen3_moe", "parallel.context=2", "parallel.expert=2",
			"model.load_balancing_type=global_aux_loss"), 1e-5},
		{"dropout, window", []string{"parallel.context=2", "model.family=mistral", "model.window=5"}, 1e-5},
		{"bfloat16", []string{"parallel.context=2", "model.family=llama", "device.dtype=bfloat16"}, 2e-3},
		{"sinks, experts", experts("gpt_oss", "parallel.context=2", "model.window=6"), 1e-5},
		{"four ranks, replicas", []string{"model.family=gpt2", "parallel.context=4", "parallel.data=2"}, 1e-5},
	} {
		if i > 1 && !long {
			break
		}
		t.Run(c.name, func(t *testing.T) {
			sets := slices.Concat([]string{"model.context=16", "run.steps=2"}, c.sets)
			want, _, _ := trainIn(t, filepath.Join(t.TempDir(), "out"), append(sets[:len(sets):len(sets)], "batch.microbatch=1",
				"optimizer.decay=constant", "device.kind=cpu")...)
			sets = append(sets, "device.kind=cuda")
			got := trainOn(t, filepath.Join(t.TempDir(), "out"), sets...)
			t.Logf("losses %v, on the CPU %v", got.losses, want)
			near(t, c.name, got.losses, want, c.tolerance)
			again := trainOn(t, filepath.Join(t.TempDir(), "out"), append(sets, "pipeline.stages=2")...)
			again.same(t, "two stages", got)
		})
	}
}
