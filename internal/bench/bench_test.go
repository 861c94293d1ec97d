package bench

import (
	"context"
	"errors"
	"math"
	"os"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/host/sysinfo"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tiny loads one of Models at sizes that take no time.
func tiny(model string, more ...string) Load {
	return func(sets []string) (*config.Config, error) {
		return ModelConfig(model, slices.Concat(sets, []string{"model.layers=2", "model.hidden=16", "model.heads=4", "model.context=8",
			"model.vocab=40", "batch.sequences=4", "device.threads=2"}, more))
	}
}

// The models are the ones that are compared with others.
func TestModels(t *testing.T) {
	want := map[string]int64{"gpt": 10_844_160, "gpt2-124m": 123_849_984, "llama": 55_976_448, "qwen3": 47_852_032}
	for _, name := range Models() {
		c, err := ModelConfig(name, SizesOnly)
		if err != nil {
			t.Fatal(err)
		}
		if got := sizes(c).Parameters(); got != want[name] || c.Run.Name != name || c.Model.Dropout != 0 {
			t.Errorf("%s has %d parameters, want %d; its name is %q, its dropout %g", name, got, want[name], c.Run.Name, c.Model.Dropout)
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
	if _, err := ModelConfig("none", nil); !errors.Is(err, ErrInput) {
		t.Errorf("the model none: %v", err)
	}
}

// Every operation of both families runs, and its figures are finite.
func TestOps(t *testing.T) {
	for model, want := range map[string][]string{
		"gpt": {"positions", "LayerNorm, weight gradient", "qkv", "qkv, bias gradient", "head, weight gradient", "attention, gradient",
			"GELU, gradient", "cross-entropy", "AdamW", "AdamW, all parameters"},
		"llama": {"RMSNorm, gradient", "key, value", "RoPE", "attention of documents, gradient", "SwiGLU, gradient", "dropout", "embed, gradient",
			"gradient norm"},
	} {
		var got []string
		err := Ops(t.Context(), tiny(model), 1e-9, func(r OpResult) error {
			got = append(got, r.Op)
			rate := r.GFLOPS
			if rate == nil {
				rate = r.GBPerS
			}
			if !(rate.Median > 0) || math.IsInf(rate.Median, 0) || r.Threads != 2 || (r.OfCopy == nil) != (r.GBPerS == nil) {
				t.Errorf("%+v", r)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range want {
			if !slices.Contains(got, name) {
				t.Errorf("%s: %q is missing in %q", model, name, got)
			}
		}
	}
}

// tempDir makes the folder for temporary folders one that the test can look into.
func tempDir(t *testing.T) string {
	dir := t.TempDir()
	for _, name := range []string{"TMPDIR", "TMP"} {
		t.Setenv(name, dir)
	}
	return dir
}

func TestSteps(t *testing.T) {
	for name, sets := range map[string][]string{
		"one stage":  nil,
		"two stages": {"pipeline.stages=2", "pipeline.chunks=2", "model.layers=4", "batch.microbatch=1"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := tempDir(t)
			s, err := StartSteps(t.Context(), tiny("gpt", sets...))
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range []int{1, 1, 3, 1} {
				steps, took, err := s.Run(t.Context(), n)
				if err != nil || took <= 0 || steps < n {
					t.Errorf("asked for %d steps: %d in %v, %v", n, steps, took, err)
				}
			}
			r, err := s.Measure(t.Context(), 1e-9)
			if err != nil || r.MS.Samples != leastSamples || r.Steps < leastSamples || r.TokensPerStep != 32 || r.Threads != 2 ||
				(r.HostCPUMS > 0) != (sysinfo.CPUTime() > 0) || r.DeviceTakenBytes != 0 ||
				!(r.TokensPerS.Median > 0) || !(r.GFLOPS.Median > 0) {
				t.Errorf("%+v, %v", r, err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

// TestStepsExperts: the operations of a step are those of a token's experts, of the shared one and of the router.
func TestStepsExperts(t *testing.T) {
	tempDir(t)
	s, err := StartSteps(t.Context(), tiny("llama", "model.family=qwen2_moe", "model.ffn=24",
		"model.experts=6", "model.experts_per_token=2", "model.expert_ffn=12", "model.shared_expert_ffn=20"))
	if err != nil {
		t.Fatal(err)
	}
	got := s.Info().GFLOPPerStep
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	const hidden, layers, tokens = 16, 2, 32
	attention := 2*hidden*4*hidden + 4*hidden*8/2. // projections; products with half of the context
	experts := 2*hidden*6 + 6*hidden*(2*12+20.)    // the router, two experts and the shared one
	want := 3 * (layers*(attention+experts) + 2*hidden*40 + 2*hidden) * tokens / 1e9
	if math.Abs(got-want) > 1e-9*want {
		t.Errorf("a step has %v GFLOP, want %v", got, want)
	}
}

// Whatever ends it, nothing is left behind.
func TestStepsFail(t *testing.T) {
	dir := tempDir(t)
	for name, load := range map[string]Load{
		"unknown":    tiny("none"),
		"checkpoint": tiny("gpt", "model.from=x"),
		"layout":     tiny("gpt", "pipeline.layout=E|L"),
	} {
		if _, err := StartSteps(t.Context(), load); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := StartSteps(ended, tiny("gpt")); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
