//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/bench"
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/tensorops/cuda"
)

// TestGPUMemory: what a run may take is what its GPU has free, and what it took is told.
func TestGPUMemory(t *testing.T) {
	l := useStandIn(t)
	t.Cleanup(l.Reset)
	load := func(sets []string) (*config.Config, error) {
		return bench.ModelConfig("gpt", append(sets, "model.layers=1", "model.hidden=16", "model.heads=2", "model.context=8", "model.vocab=40",
			"batch.sequences=2", "device.kind=cuda"))
	}
	steps, err := bench.StartSteps(t.Context(), load)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := steps.Run(t.Context(), 1); err != nil {
		t.Error(err)
	}
	took := steps.Memory()
	if took.DevicePeakBytes <= 0 || took.DeviceTakenBytes < took.DevicePeakBytes {
		t.Errorf("a run took %+v", took)
	}
	b, err := steps.Plan()
	if err != nil {
		t.Fatal(err)
	}
	if err := steps.Close(); err != nil {
		t.Error(err)
	}

	l.Memory(123 << 20)
	if free, err := b.FreeBytes(); err != nil || free != 123<<20 {
		t.Errorf("%d bytes are free, %v", free, err)
	}
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("a b ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := load([]string{fmt.Sprintf("data.train=[%q]", text), "data.tokenizer=bytes"})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Model.Vocab = 256
	if err := troupe.Check(cfg); err != nil {
		t.Errorf("with enough memory: %v", err)
	}
	l.Memory(uintptr(took.DevicePeakBytes / 2))
	if err := troupe.Check(cfg); !errors.Is(err, troupe.ErrMemory) || !strings.Contains(err.Error(), "the GPU, but it has 0.0 GiB free") {
		t.Errorf("with half of the memory: %v", err)
	}
}

// TestLimitLeaves: a limit bounds what is free.
func TestLimitLeaves(t *testing.T) {
	useStandIn(t)
	o := device.CUDAOptions()
	o.LimitBytes = 1 << 20
	d, err := cuda.New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if free, err := d.FreeBytes(); err != nil || free != 1<<20 {
		t.Errorf("%d bytes are free, %v", free, err)
	}
}

// TestBench: the operations that are measured run on the device, and their tensors go back.
func TestBench(t *testing.T) {
	if testing.Short() {
		t.Skip("it repeats each operation for a while")
	}
	useStandIn(t)
	for _, family := range []string{"llama", "gpt2"} {
		if !long && family != "llama" { // it repeats for a while
			continue
		}
		load := func(sets []string) (*config.Config, error) {
			return bench.ModelConfig("gpt", append(sets, "model.layers=1", "model.hidden=8", "model.heads=2", "model.context=4", "model.vocab=12",
				"model.family="+family, "batch.sequences=1", "device.kind=cuda", "device.dtype=bfloat16"))
		}
		types := map[string]string{}
		err := bench.Ops(t.Context(), load, 1e-9, func(r bench.OpResult) error {
			types[r.Op] = r.DType
			if !strings.HasPrefix(r.Kernels, "cuda-") || !(r.MS.Median > 0) || (r.FLOPs > 0) == (r.Bytes > 0) {
				t.Errorf("%+v", r)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for name, dtype := range map[string]string{"up": "bfloat16", "head, weight gradient": "bfloat16", "AdamW, all parameters": "float32",
			"cross-entropy with its gradient": "bfloat16"} {
			if types[name] != dtype {
				t.Errorf("%s, %s: the type is %q, want %s", family, name, types[name], dtype)
			}
		}
		if types["attention"] == "" || types["attention, gradient"] == "" {
			t.Errorf("%s: attention is missing in %v", family, types)
		}
	}
}

// TestForecastScratch: the forecast of a rank's memory has what kernels take beside tensors, and
// what it says is near what a run takes.
func TestForecastScratch(t *testing.T) {
	useStandIn(t)
	for _, blas := range []bool{true, false} {
		kernels := ""
		if !blas {
			t.Setenv("TROUPE_LIBCUBLASLT", cuda.NoBLAS)
			kernels = "cuda-sm_90"
		}
		for _, sets := range [][]string{
			{"device.dtype=bfloat16", "model.family=gpt2"},
			{"device.dtype=bfloat16", "model.family=llama", "pipeline.stages=2"},
			{"device.dtype=float32", "model.family=gpt2"},
		} {
			t.Run(fmt.Sprintf("cuBLASLt %v, %s", blas, strings.Join(sets, ", ")), func(t *testing.T) {
				cfg, took := memoryOf(t, append(sets, "device.kind=cuda", "model.hidden=64", "model.vocab=600")...)
				p, err := plan.Resolve(cfg, nil)
				if err != nil {
					t.Fatal(err)
				}
				p.SetKernels(kernels)
				forecast, err := p.MemoryBytes()
				if err != nil {
					t.Fatal(err)
				}
				for rank, bytes := range forecast {
					name := fmt.Sprintf("stage %d", rank)
					tensors, scratch := took[name], took[name+" (scratch)"]
					dry := cuda.NewDry(kernels)
					bytes -= dry.Bytes() // what a stream takes in any case, which no arena counts
					t.Logf("rank %d took %d bytes, %d of them scratch memory; the forecast is %d", rank, tensors+scratch, scratch, bytes)
					// Of the update's tables there is no forecast: they are some KiB.
					if scratch == 0 && sets[0] != "device.dtype=float32" || bytes < (tensors+scratch)*99/100 || bytes > (tensors+scratch)*3/2 {
						t.Errorf("rank %d took %d bytes of tensors and %d of scratch memory; the forecast is %d", rank, tensors, scratch, bytes)
					}
				}
			})
		}
	}
}

// memoryOf trains a small model and returns its configuration and the most that each arena has
// taken.
func memoryOf(t *testing.T, sets ...string) (*config.Config, map[string]int64) {
	t.Helper()
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("The stages pass their activations on. ", 40)), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Parse("memory", []byte(`
run = {steps = 3, eval_batches = 1, stall_after_s = 0}
model = {layers = 2, heads = 2, context = 16}
batch = {sequences = 4, microbatch = 2}
`), append([]string{fmt.Sprintf("data.train=[%q]", text),
		fmt.Sprintf("run.out=%q", filepath.Join(t.TempDir(), "out"))}, sets...), os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	run, err := troupe.Start(t.Context(), cfg, troupe.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for range run.Events() {
	}
	if _, err := run.Wait(); err != nil {
		t.Fatal(err)
	}
	return cfg, run.StageMemory()
}
