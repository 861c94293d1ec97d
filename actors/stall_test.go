package actors_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/internal/run/trainstate"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry"
	"github.com/troupe-ml/troupe/telemetry/event"
	"github.com/troupe-ml/troupe/tensorops"
)

// gate is a collective operation that does not complete before it is opened.
type gate struct {
	tensorops.Solo
	closed chan struct{}
	open   func()
}

func newGate() gate {
	c := make(chan struct{})
	return gate{closed: c, open: sync.OnceFunc(func() { close(c) })}
}

func (g gate) Start(_ *tensorops.Op, done func(error)) {
	go func() { // ends when the gate opens
		<-g.closed
		done(nil)
	}()
}

// block records a collective that waits for the gate.
func (g gate) block(l *tensorops.List) {
	x := l.Alloc(tensorops.Float32, 1)
	l.AllReduce(x, tensorops.Sum, g)
	l.Free(x)
}

// stuck is a real stage whose forward of a microbatch waits for a gate in a step.
type stuck struct {
	actors.Compute
	gate         gate
	step         int64
	chunk, index int
}

func (s *stuck) Forward(l *tensorops.List, chunk int, mb *stages.Microbatch, in ...tensorops.Tensor) []tensorops.Tensor {
	if mb.Train && mb.Step == s.step && chunk == s.chunk && mb.Index == s.index {
		s.gate.block(l)
	}
	return s.Compute.Forward(l, chunk, mb, in...)
}

// A device that does not come back: status is answered, the stall is reported,
// with its root; when it comes back, the run goes on as if nothing had
// happened.
func TestStuckDevice(t *testing.T) {
	g := newGate()
	tr := training{model: families[0], threads: 2, steps: 4, evalLens: []int{10, 10}, cuts: []int{1, 2, 4},
		table: generate(t, scheduler.Spec{Ranks: 2, Chunks: 2, Microbatches: 8})}
	want := tr.run(t).figures()
	tr.wrap = func(rank int, c actors.Compute) actors.Compute {
		if rank == 1 {
			return &stuck{Compute: c, gate: g, step: 3, chunk: 3, index: 2}
		}
		return c
	}
	l := &log{}
	spec := tr.spec(t, l)
	t.Cleanup(g.open) // before the device closes
	spec.StallAfter = 30 * time.Millisecond
	run := start(t, spec)
	run.Record(time.Hour)
	const root = "root: stage 1 is running 3F2 (forward of microbatch 2 on chunk 3), "
	var stall event.StallEvent
	eventually(t, run, "the report", func() bool {
		// The machine may be slow, and the run quiet, before, also where another actor is the root.
		for _, e := range eventsOf[event.StallEvent](l) {
			if strings.HasPrefix(e.Status.Explain(), root) {
				stall = e
			}
		}
		return stall.Quiet > 0
	})
	if stall.Quiet < spec.StallAfter {
		t.Errorf("it reports after %v, before %v", stall.Quiet, spec.StallAfter)
	}
	eventually(t, run, root, func() bool { return strings.HasPrefix(run.Status().Explain(), root) })
	// What was done before is there, though nobody can answer.
	a := run.Actions()
	if a.Step != 3 || a.Phase != event.Train || len(a.Ranks) != 2 || a.Began.IsZero() {
		t.Fatalf("recorded: %+v", a)
	}
	for rank, times := range a.Ranks {
		if len(times) == 0 || len(times) >= len(spec.Table.Ranks[rank]) {
			t.Errorf("rank %d has done %d actions", rank, len(times))
		}
		for i, at := range times {
			if at.Action != spec.Table.Ranks[rank][i] || at.End.Before(at.Start) {
				t.Errorf("action %d of rank %d is %+v", i, rank, at)
			}
		}
	}
	g.open()
	if out := wait(t, run); out.Err != nil {
		t.Fatal(out.Err)
	}
	if got := l.figures(); !slices.Equal(got, want) {
		t.Errorf("%x, undisturbed %x", got, want)
	}
}

// Whatever is stuck, following the waits from the scheduler leads to it.
func TestRootOfAStall(t *testing.T) {
	none := func(*actors.Spec, <-chan struct{}) {}
	oneFOneB := generate(t, scheduler.Spec{Ranks: 3, Chunks: 1, Microbatches: 6})
	for _, c := range []struct {
		name   string
		table  *scheduler.Table
		rank   int // where a part of the step is stuck, for the n-th time
		what   string
		n      int32
		change func(*actors.Spec, <-chan struct{})
		actor  string // that says
		says   string // this
		root   string
	}{
		{"forward on the first rank", oneFOneB, 0, "F", 1 + 6 + 3, none, "stage 2", "activation 1F2 (forward of microbatch 2 on chunk 1)",
			"root: stage 0 is running 0F2 (forward of microbatch 2 on chunk 0),"},
		// Another rank has reported: it is not the root.
		{"last backward on the first rank", oneFOneB, 0, "B", 6, none, "stage 1", "the decision on the step",
			"root: stage 0 is running 0B5 (backward of microbatch 5 on chunk 0),"},
		{"backward on the last rank", oneFOneB, 2, "B", 2, none, "stage 0", "gradient 1B1 (", "root: stage 2 is running 2B1 ("},
		{"no credit", generate(t, scheduler.Spec{Schedule: scheduler.GPipe, Ranks: 2, Chunks: 1, Microbatches: 6}), 1, "F", 1 + 6 + 1, none,
			"stage 0",
			"waiting to run 0F3 (forward of microbatch 3 on chunk 0)  a credit from chunk 1, which has not consumed earlier inputs (0 held, 1 needed)",
			"root: stage 1 is running 1F0 ("},
		{"tied gradient", oneFOneB, 2, "tied", 1, none, "stage 0", "gradient of the tied weight",
			"root: stage 2 is summing gradients (training),"},
		{"norms", oneFOneB, 1, "norms", 1, none, "stage 0", "the decision on the step", "root: stage 1 is summing gradients (training),"},
		{"last update", oneFOneB, 1, "apply", 4, func(s *actors.Spec, _ <-chan struct{}) { s.WriteCheckpoint, s.EvalTable = nil, nil },
			"scheduler", "stage reports (2 of 3 received)", "root: stage 1 is updating weights,"},
		{"copy", oneFOneB, 1, "save", 1, none, "checkpoint", "stage reports (2 of 3 received)", "root: stage 1 is copying state,"},
		{"data", oneFOneB, -1, "", 0, func(s *actors.Spec, open <-chan struct{}) {
			s.Data = badText{s.Data.(randomText), 2, func() error { <-open; return nil }}
		}, "stage 0", "tokens of microbatch 0", "root: loader is reading (training),"},
		{"line", oneFOneB, -1, "", 0, func(s *actors.Spec, open <-chan struct{}) {
			s.WriteRecord = func(telemetry.Record) error { <-open; return nil }
		}, "scheduler", "a write to disk", "root: metrics is writing,"},
		{"checkpoint", oneFOneB, -1, "", 0, func(s *actors.Spec, open <-chan struct{}) {
			s.WriteCheckpoint = func(context.Context, trainstate.State, []stages.Saved, bool) (string, error) {
				<-open
				return "", nil
			}
		}, "scheduler", "a write to disk", "root: checkpoint is writing,"},
		{"build", oneFOneB, -1, "", 0, func(s *actors.Spec, open <-chan struct{}) {
			whole := s.Build
			s.Build = func(rank int, st tensorops.Stream) (actors.Compute, error) {
				if rank == 1 {
					<-open
				}
				return whole(rank, st)
			}
		}, "scheduler", "stage reports (2 of 3 received)", "root: stage 1 is starting,"},
	} {
		t.Run(c.name, func(t *testing.T) {
			gate := newGate()
			l := &log{}
			hook := fails(c.rank, c.what, c.n, func(l *tensorops.List) error { gate.block(l); return nil })
			spec := fakeRun{table: c.table, threads: 2, steps: 4, evalLens: []int{4}, hook: hook}.spec(t, l)
			t.Cleanup(gate.open) // before the device closes
			c.change(&spec, gate.closed)
			run := start(t, spec)
			var s event.Status
			eventually(t, run, c.root, func() bool {
				s = run.Status()
				return strings.HasPrefix(s.Explain(), c.root)
			})
			eventually(t, run, c.says, func() bool {
				s = run.Status()
				for line := range strings.Lines(s.String()) {
					if strings.HasPrefix(line, c.actor) && strings.Contains(line, c.says) {
						return true
					}
				}
				return false
			})
			gate.open()
			if out := wait(t, run); out.Err != nil || out.State.Step != 4 {
				t.Errorf("the run ends with %+v", out)
			}
		})
	}
}

// A credit opens an edge for one output; one of an ended order opens nothing.
func TestCreditsOpenAnEdge(t *testing.T) {
	g := newGate()
	hook := fails(1, "F", 6+1, func(l *tensorops.List) error { g.block(l); return nil }) // of step 2
	table := generate(t, scheduler.Spec{Schedule: scheduler.GPipe, Ranks: 2, Chunks: 1, Microbatches: 6})
	spec := fakeRun{table: table, threads: 2, steps: 2, hook: hook}.spec(t, &log{})
	spec.Run = uuid.New()
	t.Cleanup(g.open) // before the device closes
	run := start(t, spec)
	blocked := func(microbatch int32) {
		t.Helper()
		eventually(t, run, "the wait", func() bool {
			s := run.Status().Actors[4]
			return s.Step == 2 && s.Wait == event.WaitCredit && s.Action == scheduler.Action{Type: scheduler.F, Microbatch: microbatch}
		})
	}
	h := actors.Header{Run: spec.Run, Attempt: run.Attempt(), Step: 2, Order: 2}
	old := h
	old.Order = 1
	blocked(3)
	run.Tell("stage 0", &actors.Credit{Header: old, Kind: scheduler.ForwardEdge})
	run.Tell("stage 0", &actors.Credit{Header: h, Kind: scheduler.ForwardEdge})
	blocked(4)
	run.Tell("stage 0", &actors.Credit{Header: h, Kind: scheduler.BackwardEdge}) // of another edge
	run.Tell("stage 0", &actors.Credit{Header: h, Kind: scheduler.ForwardEdge})
	blocked(5)
	g.open()
	if out := wait(t, run); out.Err != nil || out.State.Step != 2 {
		t.Errorf("the run ends with %+v", out)
	}
}
