//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"fmt"
	"math"
	"path/filepath"
	"testing"
)

// TestExpertsInGrids: tensor groups, replicas with ZeRO, and adapters of experts have the CPU's losses on a GPU.
func TestExpertsInGrids(t *testing.T) {
	if testing.Short() {
		t.Skip("it emulates every thread of a GPU")
	}
	useStandIn(t)
	t.Setenv("TROUPE_LIBCUBLASLT", "none")
	for _, c := range []struct {
		family string
		sets   []string
	}{
		{"gpt_oss", []string{"parallel.tensor=2"}},
		{"qwen2_moe", []string{"parallel.data=2", "parallel.zero=1", "model.shared_expert_ffn=12"}},
	} {
		t.Run(fmt.Sprint(c.family, " ", c.sets[0]), func(t *testing.T) {
			sameAsCPU(t, append(expertSets(c.family, "float32", c.sets), "run.steps=4"))
		})
	}
	t.Run("adapters", func(t *testing.T) {
		base := filepath.Join(t.TempDir(), "base")
		trainIn(t, base, append(expertSets("qwen3_moe", "float32", nil), "device.kind=cpu")...)
		sameAsCPU(t, []string{fmt.Sprintf("model.from=%q", base), "adapter.rank=2", "adapter.alpha=4.0"})
	})
}

// sameAsCPU trains on the CPU and on a GPU.
func sameAsCPU(t *testing.T, sets []string) {
	t.Helper()
	want := train(t, append(sets[:len(sets):len(sets)], "device.kind=cpu")...)
	got := train(t, append(sets[:len(sets):len(sets)], "device.kind=cuda")...)
	t.Logf("losses %v, on the CPU %v", got, want)
	for i, loss := range got {
		if !(math.Abs(loss-want[i]) <= 1e-5*want[i]) {
			t.Errorf("step %d: loss %v, on the CPU %v", i+1, loss, want[i])
		}
	}
}
