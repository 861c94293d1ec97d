//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/tensorops/cuda"
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

// TestExpertGroups: ranks on GPUs that share experts have the bits of replicas with all experts, of losses, weights and the optimizer's
// state, and the CPU's losses: with a balance loss over all replicas, biases, ZeRO, exchanges that overlap on a CPU, and in tensor groups.
func TestExpertGroups(t *testing.T) {
	if cuda.RaceDetector || testing.Short() {
		t.Skip("it emulates every thread of a GPU")
	}
	onGPUs(t, 2, false)
	for i, c := range []struct {
		name, family, dtype string
		sets, groups        []string
	}{
		{"global balance", "qwen3_moe", "float32", []string{"parallel.data=2", "model.load_balancing_type=global_aux_loss",
			"batch.sequences=4"}, []string{"parallel.expert=2"}},
		{"biases, overlap, 2 stages", "gpt_oss", "float32", []string{"parallel.data=2"},
			[]string{"parallel.expert=2", "parallel.expert_overlap=true", "pipeline.stages=2", "pipeline.schedule=1f1b"}},
		{"bfloat16, sigmoids", "deepseek_v3", "bfloat16", []string{"parallel.data=2", "model.n_group=4"}, []string{"parallel.expert=2"}},
		{"zero 1", "qwen2_moe", "float32", []string{"parallel.data=4", "model.shared_expert_ffn=12"},
			[]string{"parallel.expert=2", "parallel.zero=1"}},
		{"tensor groups", "qwen3_moe", "float32", []string{"parallel.data=2", "parallel.tensor=2"}, []string{"parallel.expert=2"}},
	} {
		if i > 1 && !long {
			break
		}
		t.Run(c.name, func(t *testing.T) {
			sets := append(expertSets(c.family, c.dtype, c.sets), "run.steps=2")
			want := trainOn(t, filepath.Join(t.TempDir(), "out"), append(sets[:len(sets):len(sets)], "device.kind=cuda")...)
			got := trainOn(t, filepath.Join(t.TempDir(), "out"), slices.Concat(sets, c.groups, []string{"device.kind=cuda"})...)
			got.same(t, c.name, want)
			tolerance := 1e-5
			if c.dtype == "bfloat16" {
				tolerance = 1e-2
			}
			onCPU, _, _ := trainIn(t, filepath.Join(t.TempDir(), "out"), slices.Concat(sets, c.groups, []string{"batch.microbatch=1",
				"optimizer.decay=constant", "device.kind=cpu"})...)
			t.Logf("losses %v, on the CPU %v", got.losses, onCPU)
			near(t, c.name, got.losses, onCPU, tolerance)
		})
	}
}

// TestExpertGroupsInProcesses: the same where the ranks are in worker processes, each with a GPU.
func TestExpertGroupsInProcesses(t *testing.T) {
	if cuda.RaceDetector || testing.Short() {
		t.Skip("it emulates every thread of a GPU")
	}
	onGPUs(t, 1, false)
	l := workers(t, 2, t.TempDir())
	defer l.Close()
	sets := append(expertSets("qwen3_moe", "float32", []string{"parallel.data=2", "model.load_balancing_type=global_aux_loss"}),
		"run.steps=2", "device.kind=cuda")
	want, _, _ := trainIn(t, filepath.Join(t.TempDir(), "out"), sets...)
	got, info, _ := trainWith(t, troupe.Options{Hosts: l.Hosts()}, filepath.Join(t.TempDir(), "out"), append(sets, "parallel.expert=2")...)
	if !slices.Equal(got, want) || len(got) != 2 || !strings.HasPrefix(info.Kernels, "cuda-") {
		t.Errorf("losses %v with %s, of replicas in one process %v", got, info.Kernels, want)
	}
}

// sameAsCPU trains on the CPU and on a GPU.
func sameAsCPU(t *testing.T, sets []string) {
	t.Helper()
	want := train(t, append(sets[:len(sets):len(sets)], "device.kind=cpu")...)
	got := train(t, append(sets[:len(sets):len(sets)], "device.kind=cuda")...)
	t.Logf("losses %v, on the CPU %v", got, want)
	near(t, fmt.Sprint(sets), got, want, 1e-5)
}
