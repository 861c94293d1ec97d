package actors_test

import (
	"runtime"
	"testing"

	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// After the first steps nothing grows any more: neither the tensors in use at a
// step's end, nor the pools, nor the Go heap.
func TestSteadyMemory(t *testing.T) {
	const steady, last = 50, 250
	for _, model := range families {
		model.Layers, model.Hidden, model.FFN, model.Context = 2, 8, 8, 4
		tr := training{model: model, threads: 2, steps: last, cuts: []int{1, 2, 3}, evalLens: []int{4, 3},
			table: generate(t, scheduler.Spec{Ranks: 2, Chunks: 2, Microbatches: 8})}
		l := &log{}
		spec := tr.spec(t, l)
		spec.EvalEvery, spec.WriteCheckpoint = 25, nil
		spec.OnEvent = func(e event.Event) {
			if _, ok := e.(event.PauseEvent); ok {
				l.clear()
				l.event(e)
			}
		}
		run := startPaused(t, spec, l)
		run.step()
		first := spec.Device.Memory()
		for run.done < steady {
			run.step()
			if m := spec.Device.Memory(); m.InUse != first.InUse {
				t.Fatalf("%s: %d bytes of tensors are in use after step %d, %d after the first", model.Family, m.InUse, run.done, first.InUse)
			}
		}
		pooled, heap := spec.Device.Memory().Pooled, heapBytes()
		run.steps(last - 1 - steady)
		if m := spec.Device.Memory(); m.InUse != first.InUse || m.Pooled > pooled+pooled/20 {
			t.Errorf("%s: %+v after step %d; %d in use after the first, %d pooled after step %d", model.Family, m, run.done, first.InUse, pooled,
				steady)
		}
		if h := heapBytes(); h > heap+64<<10 {
			t.Errorf("%s: the heap has %d bytes after step %d, %d after step %d", model.Family, h, run.done, heap, steady)
		}
		run.free()
		if out := wait(t, run.run); out.Err != nil {
			t.Fatal(out.Err)
		}
	}
}

// heapBytes is what the Go heap holds after a collection.
func heapBytes() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// What a step allocates on the Go heap (messages, reports) does not depend on the
// model's size.
func TestAllocationDoesNotGrowWithTheModel(t *testing.T) {
	const warm, steps = 20, 50
	perStep := func(hidden, vocab int) float64 {
		model := families[0]
		model.Layers, model.Hidden, model.FFN, model.Context, model.Vocab = 2, hidden, 4*hidden, 4, vocab
		tr := training{model: model, threads: 2, steps: warm + steps + 1, cuts: []int{1, 2, 3}, evalLens: []int{4},
			table: generate(t, scheduler.Spec{Ranks: 2, Chunks: 2, Microbatches: 8})}
		l := &log{}
		spec := tr.spec(t, l)
		spec.EvalEvery, spec.WriteCheckpoint = 0, nil
		spec.OnEvent = func(e event.Event) {
			if _, ok := e.(event.PauseEvent); ok {
				l.clear()
				l.event(e)
			}
		}
		run := startPaused(t, spec, l)
		run.steps(warm)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		run.steps(steps)
		runtime.ReadMemStats(&after)
		run.free()
		if out := wait(t, run.run); out.Err != nil {
			t.Fatal(out.Err)
		}
		return float64(after.TotalAlloc-before.TotalAlloc) / steps
	}
	small, large := perStep(32, 1024), perStep(128, 4096)
	if large > 1.2*small+4096 {
		t.Errorf("a step of a model four times as wide allocates %.0f bytes, %.0f of the small one", large, small)
	}
	t.Logf("%.0f and %.0f bytes a step", small, large)
}
