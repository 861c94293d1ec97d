package actors_test

import (
	"runtime"
	"testing"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/scheduler"
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
		spec.OnEvent = func(e actors.Event) {
			if _, ok := e.(actors.PauseEvent); ok {
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
			t.Errorf("%s: %+v after step %d; %d in use after the first, %d pooled after step %d", model.Family, m, run.done, first.InUse, pooled, steady)
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
