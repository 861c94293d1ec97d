//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/internal/optest"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cuda"
	"github.com/troupe-ml/troupe/tensorops/cuda/internal/standin"
)

// TestTrains: whole runs on the stand-in have the CPU's losses, within what another order
// of the same sums makes of them, or bfloat16 in attention, and the same bits for every
// number of stages and run after run.
func TestTrains(t *testing.T) {
	if testing.Short() {
		t.Skip("it emulates every thread of a GPU")
	}
	tolerance := 1e-5
	if os.Getenv(realGPU) == "" {
		useStandIn(t)
	} else {
		tolerance = 1e-3 // of the hardware's exponentials
	}
	library := os.Getenv("TROUPE_LIBCUBLASLT")
	t.Setenv("TROUPE_LIBCUBLASLT", "none")
	t.Run("own products", func(t *testing.T) { trains(t, tolerance, 0) })
	t.Run("cuBLASLt", func(t *testing.T) {
		t.Setenv("TROUPE_LIBCUBLASLT", library)
		if is := cuda.Describe(device.CUDAOptions()); is.BLAS == nil {
			t.Skip(is.NoBLAS)
		}
		trains(t, tolerance, 1)
		// Rows of logits that are filled up.
		odd := []string{"model.vocab=263", `device.dtype="bfloat16"`}
		want, got := train(t, append(odd, "device.kind=cpu")...), train(t, append(odd, "device.kind=cuda")...)
		for i, loss := range got {
			if math.Abs(loss-want[i]) > 1e-3*want[i] {
				t.Errorf("%q, step %d: loss %v, on the CPU %v", odd, i+1, loss, want[i])
			}
		}
		for _, layout := range []string{"pipeline.stages=2", "pipeline.schedule=zb-v"} {
			if again := train(t, append(odd, "device.kind=cuda", "pipeline.stages=2", layout)...); !slices.Equal(again, got) {
				t.Errorf("%q, %s: losses %v, want the same bits as with one stage, %v", odd, layout, again, got)
			}
		}
		// What is rounded is near what is not, and the same under every layout.
		for _, set := range []string{`device.dtype="bfloat16"`, "device.tf32=true"} {
			want := train(t, "device.kind=cuda", "batch.microbatch=1")
			got := train(t, "device.kind=cuda", "batch.microbatch=1", set)
			if slices.Equal(got, want) {
				t.Errorf("%s changes nothing", set)
			}
			for i, loss := range got {
				if math.Abs(loss-want[i]) > 1e-2*want[i] {
					t.Errorf("%s, step %d: loss %v, in float32 %v", set, i+1, loss, want[i])
				}
			}
			if again := train(t, "device.kind=cuda", "batch.microbatch=1", set, "pipeline.stages=2"); !slices.Equal(again, got) {
				t.Errorf("%s, 2 stages: losses %v, want the same bits as with one, %v", set, again, got)
			}
		}
	})
}

// long is for what takes long: make check-cuda.
var long = os.Getenv("TROUPE_LONG_TESTS") != ""

// trains trains models of each family on the GPU: of the stand-in, which is slow, every second of them by turns
// that begin at first.
func trains(t *testing.T, tolerance float64, first int) {
	for i, test := range []struct {
		family, dtype string
		tolerance     float64
	}{
		{"gpt2", "float32", tolerance},
		{"llama", "float32", tolerance},
		{"llama", "bfloat16", 1e-3},
		{"gpt2", "bfloat16", 1e-3},
	} {
		if os.Getenv(realGPU) == "" && !long && i%2 != first {
			continue
		}
		model := []string{"model.family=" + test.family, "device.dtype=" + test.dtype}
		want := train(t, append(model, "device.kind=cpu")...)
		got := train(t, append(model, "device.kind=cuda")...)
		for i, loss := range got {
			if math.Abs(loss-want[i]) > test.tolerance*want[i] {
				t.Errorf("%v, step %d: loss %v, on the CPU %v", model, i+1, loss, want[i])
			}
		}
		for i, layout := range [][]string{
			nil,
			{"pipeline.stages=2", "pipeline.schedule=zb-v", "pipeline.recompute=full"},
			{"pipeline.stages=2"},
			{"pipeline.stages=4"},
		} {
			if os.Getenv(realGPU) == "" && !long && i > 1 { // two stages and more are also below, and those of TestTrainsOnGPUs
				break
			}
			again := train(t, slices.Concat(layout, model, []string{"device.kind=cuda"})...)
			if !slices.Equal(again, got) {
				t.Errorf("%v, %v: losses %v, want the same bits as with one stage, %v", model, layout, again, got)
			}
		}
	}
}

// TestTrainsByGraphs: the passes of a chunk come again from step to step, at the same
// addresses, and are launched as graphs.
func TestTrainsByGraphs(t *testing.T) {
	l := useStandIn(t)
	launched, made := l.Calls("cuGraphLaunch"), l.Calls("cuGraphInstantiateWithFlags")
	train(t, "model.family=gpt2", "device.kind=cuda")
	launched, made = l.Calls("cuGraphLaunch")-launched, l.Calls("cuGraphInstantiateWithFlags")-made
	// Of four steps the first takes memory, the second is the first to repeat. A step has two
	// forward and two backward passes.
	t.Logf("%d graphs were made and %d launched", made, launched)
	if launched < 8 || made > 6 {
		t.Errorf("%d graphs were made and %d launched", made, launched)
	}
}

// realGPU is the environment's word that tests run on a GPU: see scripts/gpu-check.
const realGPU = "TROUPE_GPU"

// useStandIn makes configurations that ask for CUDA find the stand-in.
func useStandIn(t *testing.T) *standin.Library {
	t.Helper()
	path, err := cuda.StandIn()
	if errors.Is(err, standin.ErrCompiler) {
		t.Skipf("%v: without one the device is not tested on a machine without a GPU", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	l, err := standin.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	l.Reset()
	t.Setenv("TROUPE_LIBCUDA", path)
	t.Setenv("TROUPE_LIBNVRTC", path)
	t.Setenv("TROUPE_LIBCUBLASLT", path)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	return l
}

// TestGPU runs the one table of cases on a real GPU, and again for its bits.
func TestGPU(t *testing.T) {
	if os.Getenv(realGPU) == "" {
		t.Skipf("%s is not set: no GPU is asked for", realGPU)
	}
	dev, err := cuda.New(device.CUDAOptions())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dev.Close)
	t.Logf("kernels: %s", dev.Path()) // scripts/gpu-check reads this, and what is logged below
	oracle := new(optest.Oracle)
	optest.Run(t, dev, optest.Options{Skip: cuda.Refused, Oracle: oracle})
	is, err := json.Marshal(dev.Work())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("work: %s", is)
	// Products and what goes into them, in each way that they may go beside the usual one.
	for name, change := range map[string]func(*cuda.Options){
		"own products": func(o *cuda.Options) { o.BLAS = cuda.NoBLAS },
		"GELU fused":   func(o *cuda.Options) { o.GELU = cuda.GELUFused },
		"GELU apart":   func(o *cuda.Options) { o.GELU = cuda.GELUApart },
	} {
		t.Run(name, func(t *testing.T) {
			o := device.CUDAOptions()
			change(&o)
			d, err := cuda.New(o)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(d.Close)
			optest.Run(t, d, optest.Options{Oracle: oracle, Skip: func(c optest.Case) bool {
				return cuda.Refused(c) || c.Kind != tensorops.KindMatMul && c.Kind != tensorops.KindPack
			}})
		})
	}
	optest.Deterministic(t, func(int) tensorops.Device {
		again, err := cuda.New(device.CUDAOptions())
		if err != nil {
			t.Fatal(err)
		}
		return again
	}, optest.Options{Skip: cuda.Refused})
}

// TestTF32Unknown: who asks for TF32 hears that the device's own products don't know it.
func TestTF32Unknown(t *testing.T) {
	useStandIn(t)
	t.Setenv("TROUPE_LIBCUBLASLT", "none")
	want, _ := warnedTrain(t, "device.kind=cuda")
	got, warnings := warnedTrain(t, "device.kind=cuda", "device.tf32=true")
	if !slices.Equal(got, want) || len(warnings) != 1 || !strings.Contains(warnings[0], "cuBLASLt") {
		t.Errorf("losses %v, without TF32 %v; warnings %q", got, want, warnings)
	}
}

// train runs a small model and returns the losses of its steps.
func train(t *testing.T, sets ...string) []float64 {
	t.Helper()
	losses, warnings := warnedTrain(t, sets...)
	if len(warnings) > 0 && slices.Contains(sets, "device.kind=cuda") { // the CPU's may not know bfloat16
		t.Errorf("%v: warnings %q", sets, warnings)
	}
	return losses
}

func warnedTrain(t *testing.T, sets ...string) (losses []float64, warnings []string) {
	t.Helper()
	losses, info, warnings := trainIn(t, filepath.Join(t.TempDir(), "out"), sets...)
	if kind := slices.Contains(sets, "device.kind=cuda"); kind != strings.HasPrefix(info.Kernels, "cuda-") {
		t.Errorf("with %q the run computes with %s", sets, info.Kernels)
	}
	if len(losses) != 4 {
		t.Fatalf("%d losses", len(losses))
	}
	return losses, warnings
}

// trainIn runs a small model in an output folder.
func trainIn(t *testing.T, out string, sets ...string) (losses []float64, info troupe.Info, warnings []string) {
	t.Helper()
	return trainWith(t, troupe.Options{}, out, sets...)
}

// smallModel is the configuration of a small model's run in an output folder.
func smallModel(t *testing.T, out string, sets ...string) *config.Config {
	t.Helper()
	text := filepath.Join(filepath.Dir(out), "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("The stages pass their activations on. ", 40)), 0o600); err != nil {
		t.Fatal(err)
	}
	all := append([]string{fmt.Sprintf("data.train=[%q]", text), fmt.Sprintf("run.out=%q", out)}, sets...)
	cfg, err := config.Parse("train", []byte(`
run = {steps = 4, eval_batches = 1, stall_after_s = 0}
model = {layers = 2, hidden = 16, heads = 2, context = 8, vocab = 256, dropout = 0.1}
batch = {sequences = 4, microbatch = 2}
optimizer = {warmup_steps = 0, clip_norm = 0.5}
`), all, os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func trainWith(t *testing.T, o troupe.Options, out string, sets ...string) (losses []float64, info troupe.Info, warnings []string) {
	t.Helper()
	run, err := troupe.Start(t.Context(), smallModel(t, out, sets...), o)
	if err != nil {
		t.Fatal(err)
	}
	for e := range run.Events() {
		switch e := e.(type) {
		case troupe.StepEvent:
			if e.Loss != nil {
				losses = append(losses, *e.Loss)
			}
		case troupe.WarningEvent:
			warnings = append(warnings, e.Text)
		}
	}
	if _, err := run.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"cuda", "cpu"} {
		if m := run.Memory(kind); m.InUse != 0 || m.Pooled != 0 {
			t.Errorf("%q: %+v are left on %s", sets, m, kind)
		}
	}
	return losses, run.Info(), warnings
}
