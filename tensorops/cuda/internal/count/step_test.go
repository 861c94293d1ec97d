//go:build linux && (amd64 || arm64) && !nocuda

package count_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/host/gpus"
	"github.com/troupe-ml/troupe/tensorops/cuda/internal/count"
	"github.com/troupe-ml/troupe/tensorops/cuda/internal/standin"
)

// gpt2 is GPT-2 124M with a batch of 16 sequences in one microbatch.
var gpt2 = count.Shape{Layers: 12, C: 768, Heads: 12, V: 50257, B: 16, T: 1024, ResidualBytes: 2}

// TestStep counts a step of GPT-2 124M in bfloat16, by a run of the engine on the stand-in, whose streams do
// nothing: make count-cuda prints it.
func TestStep(t *testing.T) {
	l, path := stand(t)
	t.Cleanup(l.Reset)
	const memory = 80 << 30
	l.Memory(memory)
	l.Processors(132)
	l.Hollow(1)
	l.LogBegin()
	step := trainShape(t, l, path, gpt2)
	h100, _ := gpus.Named("h100")
	device := count.Device{FLOPs: h100.BF16FLOPs, BytesPerS: h100.BytesPerS, Launch: 2 * time.Microsecond, Turnaround: 50 * time.Microsecond}

	floor, autocast := count.Floor(gpt2), count.Autocast(gpt2)
	element, all := step.Sum(count.Group.ElementWise), step.Sum(func(count.Group) bool { return true })
	used := l.Most("memory")
	fmt.Print("\nA step of GPT-2 124M, 16 sequences of 1024, one microbatch, bfloat16. Times are estimates for an H100 SXM; nothing ran on a GPU.\n\n",
		step.String(device), "\n",
		count.List("Floor of element-wise work:", floor),
		fmt.Sprintf("  element-wise work moves %.2f GB, %.2f times the floor\n\n", float64(element.Bytes())/1e9,
			float64(element.Bytes())/float64(count.Total(floor))),
		count.List("PyTorch under autocast, by what it keeps:", autocast),
		fmt.Sprintf("  device memory at most %.2f GB, %.2f times that; page-locked %.2f GB\n\n", float64(used)/1e9,
			float64(used)/float64(count.Total(autocast)), float64(l.Most("pinned"))/1e9),
		fmt.Sprintf("launches: %d, of which %d in %d graphs; to the device %.1f KB, to the host %.1f KB\nturnarounds: %d\n", all.Launches,
			all.Graphed, step.Graphs,
			float64(step.ToDevice)/1e3, float64(step.ToHost)/1e3, step.Turnarounds),
		fmt.Sprintf("estimate: %.1f ms, of which products %.1f, attention %.1f, element-wise %.1f, turnarounds %.1f\n\n",
			ms(all.Time(device)+time.Duration(step.Turnarounds)*device.Turnaround),
			ms(sum(step, count.Products).Time(device)), ms(sum(step, count.Attention).Time(device)), ms(element.Time(device)),
			ms(time.Duration(step.Turnarounds)*device.Turnaround)))

	// What the model's arithmetic asks for is there: three times the forward's products.
	n, c := float64(gpt2.B*gpt2.T), float64(gpt2.C)
	want := 3 * 2 * n * (float64(gpt2.Layers)*12*c*c + c*float64(gpt2.V))
	if products := sum(step, count.Products); products.FLOPs < want || products.FLOPs > 1.01*want {
		t.Errorf("products of %.4g FLOPs, the model's are %.4g", products.FLOPs, want)
	}
	if used < int64(16*gpt2.Parameters()) || used > count.Total(autocast) {
		t.Errorf("%d bytes of memory, PyTorch under autocast keeps %d", used, count.Total(autocast))
	}
	if step.Turnarounds > 2 {
		t.Errorf("%d turnarounds, want at most 2", step.Turnarounds)
	}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func sum(s *count.Step, g count.Group) *count.Line {
	l := s.Sum(func(other count.Group) bool { return other == g })
	return &l
}

// trainShape trains a model for some steps and returns the one of which the most is settled: graphs
// are made, and the least turnarounds counted, as a host that is kept from its work looks like one that waits.
func trainShape(t *testing.T, l *standin.Library, path string, s count.Shape) *count.Step {
	t.Helper()
	for _, name := range []string{"TROUPE_LIBCUDA", "TROUPE_LIBNVRTC", "TROUPE_LIBCUBLASLT"} {
		t.Setenv(name, path)
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	dir := t.TempDir()
	ids := make([]byte, 0, 4*s.B*(s.T+1)*24)
	for i := range cap(ids) / 4 {
		ids = binary.LittleEndian.AppendUint32(ids, uint32(i*7919%s.V))
	}
	data := filepath.Join(dir, "ids")
	if err := os.WriteFile(data, ids, 0o600); err != nil {
		t.Fatal(err)
	}
	const settled, counted = 3, 3 // steps
	cfg, err := config.Parse("count", fmt.Appendf(nil, `
run = {steps = 1000, eval_every = 0, eval_batches = 1, checkpoint_every = 0, stats_every = 0, stall_after_s = 0, out = %q}
data = {train = [%q], format = "uint32", val_fraction = 0.1}
model = {family = "gpt2", layers = %d, hidden = %d, heads = %d, context = %d, vocab = %d}
batch = {sequences = %d, microbatch = %d}
device = {kind = "cuda", dtype = "bfloat16"}
`, filepath.Join(dir, "out"), data, s.Layers, s.C, s.Heads, s.T, s.V, s.B, s.B), nil, os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	run, err := troupe.Start(ctx, cfg, troupe.Options{})
	if err != nil {
		t.Fatal(err)
	}
	steps := count.Steps{Log: count.Log{Name: l.Kernel}}
	for e := range run.Events() {
		e, ok := e.(troupe.StepEvent)
		if !ok {
			continue
		}
		if err := steps.Take(l.Log()); err != nil {
			t.Error(err)
			cancel()
		}
		switch e.Step {
		case settled:
			l.Slow(100_000)
		case settled + counted + 1:
			l.Slow(0)
			cancel()
		}
	}
	if _, err := run.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if len(steps.All) < settled+counted+1 {
		t.Fatalf("%d steps", len(steps.All))
	}
	// Of steps that differ in nothing else. One without any was over before the device was slow.
	var best *count.Step
	for _, step := range steps.All[settled : settled+counted] {
		if step.Turnarounds > 0 && (best == nil || step.Turnarounds < best.Turnarounds) {
			best = step
		}
	}
	if best == nil {
		t.Fatal("the device was never slow")
	}
	return best
}
