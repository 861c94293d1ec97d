package actors_test

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/tensorops"
)

// slowToTell is a device whose streams tell late that a list is complete, as a GPU's do, and say that lists may
// wait for each other.
type slowToTell struct {
	tensorops.Device
	most atomic.Int32 // lists of a stream that were submitted and not complete
}

func (d *slowToTell) NewStream(name string) tensorops.Stream {
	s := &lateStream{Stream: d.Device.NewStream(name), device: d, done: make(chan func(), tensorops.LimitStreamQueue)}
	s.ended.Go(func() {
		for done := range s.done {
			time.Sleep(300 * time.Microsecond)
			s.waiting.Add(-1)
			done()
		}
	})
	return s
}

type lateStream struct {
	tensorops.Stream
	device  *slowToTell
	waiting atomic.Int32
	done    chan func()
	ended   sync.WaitGroup
}

func (s *lateStream) QueuesLists() int { return 3 }

func (s *lateStream) Submit(l *tensorops.List, done func(error)) {
	n := s.waiting.Add(1)
	for most := s.device.most.Load(); n > most && !s.device.most.CompareAndSwap(most, n); most = s.device.most.Load() {
	}
	s.Stream.Submit(l, func(err error) { s.done <- func() { done(err) } })
}

func (s *lateStream) Close() {
	s.Stream.Close()
	close(s.done)
	s.ended.Wait()
}

// TestQueuedLists: where lists are submitted before those ahead of them are known to be complete, everything has the same
// bits, in a pipeline too.
func TestQueuedLists(t *testing.T) {
	const m = sequences / microbatchSize
	evalLens := []int{10, 10, 7}
	some := func(_, microbatch int) bool { return microbatch%2 == 1 }
	for _, model := range families {
		plain := training{model: model, threads: 1, steps: 4, evalLens: evalLens,
			table: generate(t, scheduler.Spec{Ranks: 1, Chunks: 1, Microbatches: m})}
		want := plain.run(t)
		for _, c := range []struct {
			name  string
			table *scheduler.Table
			cuts  []int
		}{
			{"1 rank", plain.table, nil},
			{"1 rank, I and W apart", split(t, plain.table, 2), nil},
			{"2 ranks", generate(t, scheduler.Spec{Ranks: 2, Chunks: 1, Microbatches: m}), []int{2}},
			{"2 ranks, interleaved", generate(t, scheduler.Spec{Ranks: 2, Chunks: 2, Microbatches: m}), []int{1, 2, 4}},
			{"2 ranks in a V", generate(t, scheduler.Spec{Schedule: scheduler.ZBV, Ranks: 2, Chunks: 2, Microbatches: m}), []int{1, 2, 4}},
		} {
			tr := training{model: model, threads: 2, table: c.table, cuts: c.cuts, evalLens: evalLens, steps: 4, recompute: some}
			l := &log{}
			spec := tr.spec(t, l)
			device := &slowToTell{Device: spec.Device}
			spec.Device = device
			if out := wait(t, start(t, spec)); out.Err != nil {
				t.Fatalf("%s, %s: %v", model.Family, c.name, out.Err)
			}
			if a, b := l.figures(), want.figures(); !slices.Equal(a, b) {
				t.Errorf("%s, %s: %x, one after the other %x", model.Family, c.name, a, b)
			}
			sameState(t, model.Family+", "+c.name, want.saves[len(want.saves)-1], l.saves[len(l.saves)-1])
			if most := device.most.Load(); most < 2 || most > 3 {
				t.Errorf("%s, %s: at most %d lists were submitted and not complete, want 2 or 3", model.Family, c.name, most)
			}
			if used := device.Memory().InUse; used != 0 {
				t.Errorf("%s, %s: %d bytes are left", model.Family, c.name, used)
			}
		}
	}
}

// breaking is a stage of which a backward of some step fails.
type breaking struct {
	actors.Compute
	actors.Queuer
	passes int
	err    error
}

func (f *breaking) Backward(l *tensorops.List, chunk, index int, dy ...tensorops.Tensor) []tensorops.Tensor {
	if f.passes--; f.passes == 0 {
		l.Fail(f.err)
	}
	return f.Compute.Backward(l, chunk, index, dy...)
}

// TestQueuedListFails: a list that fails while others wait behind it fails the run, with its own error and nothing left.
func TestQueuedListFails(t *testing.T) {
	broken := errors.New("broken for the test")
	tr := training{model: families[0], threads: 2, steps: 4, cuts: []int{2},
		table: generate(t, scheduler.Spec{Ranks: 2, Chunks: 1, Microbatches: sequences / microbatchSize})}
	tr.wrap = func(rank int, c actors.Compute) actors.Compute {
		if rank == 0 {
			return c
		}
		return &breaking{c, c.(actors.Queuer), 11, broken}
	}
	spec := tr.spec(t, &log{})
	spec.Device = &slowToTell{Device: spec.Device}
	if out := wait(t, start(t, spec)); !errors.Is(out.Err, broken) {
		t.Errorf("the run ends with %v", out.Err)
	}
	if used := spec.Device.Memory().InUse; used != 0 {
		t.Errorf("%d bytes are left", used)
	}
}
