//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/tensorops/cuda"
)

// expertModels are small models with experts: a softmax, one with a shared expert whose output has a gate, biases and clamped gates
// with sinks, and sigmoids with groups, biases that loads move, jitter, and both losses of routers.
var expertModels = []struct {
	name  string
	dtype string
	sets  []string
}{
	{"qwen3_moe", "float32", []string{"model.norm_topk_prob=true"}},
	{"qwen2_moe", "float32", []string{"model.shared_expert_ffn=12"}},
	{"gpt_oss", "float32", nil},
	{"deepseek_v3", "float32", []string{"model.n_group=4", "model.router_bias_update_rate=0.05", "model.z_loss_weight=0.01",
		"model.input_jitter_eps=0.1", "model.load_balancing_type=seq_aux_loss"}},
	{"qwen3_moe", "bfloat16", nil},
	{"deepseek_v3", "bfloat16", nil},
}

func expertSets(family, dtype string, more []string) []string {
	width := "model.expert_ffn=12"
	if family == "gpt_oss" { // it has one width
		width = "model.ffn=12"
	}
	return append([]string{"model.family=" + family, "device.dtype=" + dtype, "model.experts=8", "model.experts_per_token=3", width,
		"model.aux_loss_weight=0.05"}, more...)
}

// TestTrainsExperts: models with experts have the CPU's losses, within what another order of the same sums makes of them, and the
// same bits on two stages, run after run.
func TestTrainsExperts(t *testing.T) {
	if testing.Short() {
		t.Skip("it emulates every thread of a GPU")
	}
	real := os.Getenv(realGPU) != ""
	if !real {
		useStandIn(t)
	}
	for i, test := range expertModels {
		t.Run(test.name+" "+test.dtype, func(t *testing.T) {
			tolerance := 1e-5
			switch {
			case test.dtype == "bfloat16":
				tolerance = 1e-2 // rounding may also choose another expert
			case real:
				tolerance = 1e-3 // of the hardware's exponentials
			}
			if !real && i%2 == 0 {
				t.Setenv("TROUPE_LIBCUBLASLT", "none")
			}
			sets := expertSets(test.name, test.dtype, test.sets)
			want := train(t, append(sets, "device.kind=cpu")...)
			got := train(t, append(sets, "device.kind=cuda")...)
			t.Logf("losses %v, on the CPU %v", got, want)
			for i, loss := range got {
				if !(math.Abs(loss-want[i]) <= tolerance*want[i]) {
					t.Errorf("step %d: loss %v, on the CPU %v", i+1, loss, want[i])
				}
			}
			layouts := [][]string{nil, {"pipeline.stages=2", "pipeline.schedule=zb-v", "pipeline.recompute=full"}}
			if !real && !long {
				layouts = layouts[1:] // in another layout it is another run
			}
			for _, layout := range layouts {
				if again := train(t, slices.Concat(layout, sets, []string{"device.kind=cuda"})...); !slices.Equal(again, got) {
					t.Errorf("%v: losses %v, want the same bits as with one stage, %v", layout, again, got)
				}
			}
		})
	}
}

// TestExpertsMetrics: the metrics of routers are the CPU's.
func TestExpertsMetrics(t *testing.T) {
	useStandIn(t)
	sets := expertSets("deepseek_v3", "float32", []string{"model.n_group=4", "model.z_loss_weight=0.01",
		"model.load_balancing_type=seq_aux_loss"})
	metrics := func(kind string) (all []map[string]float64) {
		run, err := troupe.Start(t.Context(), smallModel(t, filepath.Join(t.TempDir(), "out"), append(sets, "device.kind="+kind)...),
			troupe.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for e := range run.Events() {
			if step, ok := e.(troupe.StepEvent); ok && step.Step > 0 {
				all = append(all, step.Metrics)
			}
		}
		if _, err := run.Wait(); err != nil {
			t.Fatal(err)
		}
		return all
	}
	want, got := metrics("cpu"), metrics("cuda")
	if len(want) != 4 || len(got) != 4 {
		t.Fatalf("%d and %d steps", len(want), len(got))
	}
	for i, m := range want {
		for _, name := range []string{"aux_loss", "router_entropy", "router_z_loss", "expert_load_cv", "expert_load_max_ratio"} {
			if v, ok := m[name]; !ok || !(math.Abs(got[i][name]-v) <= 1e-4*max(v, 1e-2)) {
				t.Errorf("step %d: %s is %v, on the CPU %v", i+1, name, got[i][name], v)
			}
		}
	}
}

// TestGeneratesByExperts: a model with experts generates the CPU's text.
func TestGeneratesByExperts(t *testing.T) {
	useStandIn(t)
	out := filepath.Join(t.TempDir(), "out")
	trainIn(t, out, append(expertSets("qwen2_moe", "float32", []string{"model.shared_expert_ffn=12"}), "device.kind=cuda",
		"optimizer.lr=0.01")...)
	texts := make(map[string]string)
	for _, device := range []string{"", "cuda"} {
		var text strings.Builder
		err := troupe.Generate(t.Context(), troupe.GenerateOptions{ModelOptions: troupe.ModelOptions{From: out, Device: device},
			TextOptions: troupe.TextOptions{Prompt: "The ", Tokens: 4, IgnoreEnd: true}}, func(piece []byte) error {
			text.Write(piece)
			return nil
		})
		if err != nil {
			t.Fatalf("device %q: %v", device, err)
		}
		texts[device] = text.String()
	}
	if texts["cuda"] != texts[""] || texts[""] == "" {
		t.Errorf("texts %q", texts)
	}
}

// TestForecastExperts: the forecast of memory knows what the kernels of experts take.
func TestForecastExperts(t *testing.T) {
	useStandIn(t)
	t.Setenv("TROUPE_LIBCUBLASLT", cuda.NoBLAS)
	for _, dtype := range []string{"float32", "bfloat16"} {
		cfg, took := memoryOf(t, append(expertSets("qwen3_moe", dtype, nil), "device.kind=cuda", "model.hidden=64", "model.vocab=600")...)
		p, err := plan.Resolve(cfg, nil)
		if err != nil {
			t.Fatal(err)
		}
		p.SetKernels("cuda-sm_90")
		forecast, err := p.MemoryBytes()
		if err != nil {
			t.Fatal(err)
		}
		tensors, scratch := took["stage 0"], took["stage 0 (scratch)"]
		bytes := forecast[0] - cuda.NewDry("cuda-sm_90").Bytes()
		t.Logf("%s: it took %d bytes, %d of them scratch memory; the forecast is %d", dtype, tensors+scratch, scratch, bytes)
		if scratch == 0 || bytes < (tensors+scratch)*99/100 || bytes > (tensors+scratch)*3/2 {
			t.Errorf("%s: it took %d bytes of tensors and %d of scratch memory; the forecast is %d", dtype, tensors, scratch, bytes)
		}
	}
}
