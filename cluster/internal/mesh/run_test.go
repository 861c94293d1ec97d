package mesh_test

import (
	"cmp"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/cluster/internal/transport"
	"github.com/troupe-ml/troupe/internal/run/trainstate"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry/event"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu"
)

// Borders of the small model's chunks in its layers.
var (
	threeRanks = []int{2, 3}
	wholeModel []int
)

var small = stages.Config{Family: stages.GPT2, Layers: 3, Hidden: 24, Heads: 4, KVHeads: 4, FFN: 40, Context: 10, Vocab: 19, Dropout: 0.1,
	Tie: true}

// counting is a Source whose numbers depend only on their place.
type counting struct{ zeros }

func (counting) Train(step int64, index int, tokens, targets []int32) error {
	for i := range tokens {
		at := (int(step)*31+index)*len(tokens) + i
		tokens[i], targets[i] = int32(at*at%19), int32((at*at+at)%19)
	}
	return nil
}

// outcome is a run's result.
type outcome struct {
	mu      sync.Mutex
	figures []uint64 // loss and norm of each step, to the bit
	saved   []stages.Saved
}

func (o *outcome) event(e event.Event) {
	if e, ok := e.(event.StepEvent); ok {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.figures = append(o.figures, math.Float64bits(*e.Loss), math.Float64bits(*e.GradNorm))
	}
}

func (o *outcome) reset() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.figures, o.saved = nil, nil
}

func (o *outcome) write(_ context.Context, _ trainstate.State, saved []stages.Saved, _ bool) (string, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range saved {
		saved[i].Data = slices.Clone(saved[i].Data)
	}
	slices.SortFunc(saved, func(a, b stages.Saved) int { return cmp.Or(a.Index-b.Index, strings.Compare(a.Part, b.Part)) })
	o.saved = saved
	return "", nil
}

// smallRun trains the small model.
func smallRun(t testing.TB, ranks int, cuts []int, o *outcome) actors.Spec {
	t.Helper()
	const sequences, steps = 8, 6
	table, err := scheduler.Generate(scheduler.Spec{Ranks: ranks, Chunks: 1, Microbatches: sequences})
	if err != nil {
		t.Fatal(err)
	}
	m, err := stages.NewModel(small)
	if err != nil {
		t.Fatal(err)
	}
	d, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	chunks := smallChunks(m, cuts)
	return actors.Spec{
		Device: d,
		Build: func(rank int, s tensorops.Stream) (actors.Compute, error) {
			return smallStage(m, s, chunks[rank:rank+1], stages.InitWeights(5), false)
		},
		TiedRanks: slices.Compact([]int{0, ranks - 1}), Table: table,
		Data: counting{}, MicrobatchSize: 1, Context: small.Context, Sequences: sequences,
		Rate: stages.Rate{LR: 1e-2, MinLR: 1e-3, Decay: "constant"}, ClipNorm: 0.05, Steps: steps,
		WriteCheckpoint: o.write, OnEvent: o.event,
	}
}

// smallChunks divides the layers of a model.
func smallChunks(m *stages.Model, cuts []int) (chunks []stages.ChunkSpec) {
	first := 0
	for v, last := range append(slices.Clone(cuts), len(m.Symbols())) {
		chunks = append(chunks, stages.ChunkSpec{Chunk: v, First: first, Last: last})
		first = last
	}
	return chunks
}

var smallOptions = stages.Options{Seed: 5, Optimizer: stages.Optimizer{Name: stages.AdamW, Beta1: 0.9, Beta2: 0.99, Eps: 1e-8}}

// smallStage makes the stage of a rank.
func smallStage(m *stages.Model, s tensorops.Stream, chunks []stages.ChunkSpec, load stages.Source, withState bool) (*stages.Stage, error) {
	st, err := stages.NewStage(m, s, chunks, smallOptions)
	if err != nil {
		return nil, err
	}
	return st, st.Load(load, withState)
}

// TestSameBitsUnderFaults: lost, repeated, late and cut-off messages don't change a run's bits.
func TestSameBitsUnderFaults(t *testing.T) {
	want := &outcome{}
	alone, err := actors.Start(smallRun(t, 1, wholeModel, want))
	if err != nil {
		t.Fatal(err)
	}
	if out := alone.Wait(); out.Err != nil {
		t.Fatal(out.Err)
	}
	for _, c := range []struct {
		name  string
		hosts []string
		fault transport.Faults
		cuts  bool // lanes are cut, and a pair is parted for a while
	}{
		{"none", []string{"a", "b", "c"}, transport.Faults{}, false},
		{"lost", []string{"a", "b", "c"}, transport.Faults{Drop: 0.1}, false},
		{"twice", []string{"a", "b", "a"}, transport.Faults{Duplicate: 0.3}, false},
		{"late", []string{"a", "b", "c"}, transport.Faults{Delay: 3 * time.Millisecond}, false},
		{"all", []string{"a", "b", "c"}, transport.Faults{Drop: 0.02, Duplicate: 0.1, Delay: time.Millisecond}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			const seed = 7
			network := transport.NewMemory()
			all := join(t, network, boss, "a", "b", "c")
			network.SetFaults(seed, c.fault)
			got := &outcome{}
			var once sync.Once
			begun := make(chan struct{})
			run, parts := over(t, all, c.hosts, func(*process) actors.Spec {
				s := smallRun(t, 3, threeRanks, got)
				s.OnEvent = func(e event.Event) {
					got.event(e)
					once.Do(func() { close(begun) })
				}
				return s
			})
			if c.cuts {
				ended := make(chan struct{})
				defer func() { <-ended }()
				go func() { // ends with the run
					defer close(ended)
					harm(network, run, begun, rand.New(rand.NewPCG(seed, 1)), []string{boss, "a", "b", "c"})
				}()
			}
			if out := ended(t, run, parts, time.Minute); out.Err != nil {
				t.Fatal(out.Err)
			}
			if !slices.Equal(got.figures, want.figures) {
				t.Errorf("figures %x, in one system %x", got.figures, want.figures)
			}
			sameWeights(t, got.saved, want.saved)
			var control int64
			var bulk uint64
			for _, p := range all {
				for _, q := range all {
					n, m := p.mesh.Resent(q.id)
					control, bulk = control+n, bulk+m
				}
			}
			t.Logf("%d control messages and %d tensors were sent again", control, bulk)
			if c.fault.Drop > 0 && control == 0 {
				t.Error("no message was lost")
			}
		})
	}
}

// harm repeatedly cuts connections between two processes, and separates two for a while.
func harm(network *transport.Memory, run *actors.Run, begun <-chan struct{}, r *rand.Rand, names []string) {
	pair := func() (string, string) {
		i := r.IntN(len(names))
		return names[i], names[(i+1+r.IntN(len(names)-1))%len(names)]
	}
	parted := false
	for {
		select {
		case <-run.Done():
			return
		case <-time.After(time.Duration(r.IntN(30)) * time.Millisecond):
		}
		a, b := pair()
		network.Cut(a, b)
		select {
		case <-begun:
			if !parted {
				parted = true
				network.Block("a", "b")
				time.AfterFunc(300*time.Millisecond, func() { network.Heal("a", "b") })
			}
		default:
		}
	}
}

func sameWeights(t *testing.T, got, want []stages.Saved) {
	t.Helper()
	if len(got) != len(want) || len(got) == 0 {
		t.Fatalf("%d tensors are saved, %d in one system", len(got), len(want))
	}
	for i := range want {
		if got[i].Name != want[i].Name || !slices.Equal(got[i].Data, want[i].Data) {
			t.Errorf("%s differs from %s in one system", got[i].Name, want[i].Name)
		}
	}
}

// TestStagesAreThere: after StartStages returns, every stage receives messages.
func TestStagesAreThere(t *testing.T) {
	const ranks = 64
	table, err := scheduler.Generate(scheduler.Spec{Ranks: ranks, Chunks: 1, Microbatches: 2})
	if err != nil {
		t.Fatal(err)
	}
	all := join(t, transport.NewMemory(), boss, "a")
	for range 10 {
		run, parts := over(t, all, slices.Repeat([]string{"a"}, ranks), func(*process) actors.Spec { return virtualRun(table, 1) })
		if out := ended(t, run, parts, time.Minute); out.Err != nil {
			t.Fatal(out.Err)
		}
	}
	if text := all[1].logged.String(); strings.Contains(text, "no such actor") {
		t.Errorf("messages found nobody:\n%s", text)
	}
}

// TestLostProcess: a run that loses a process ends with the given error, and leaves nothing behind.
func TestLostProcess(t *testing.T) {
	table, err := scheduler.Generate(scheduler.Spec{Ranks: 4, Chunks: 1, Microbatches: 4})
	if err != nil {
		t.Fatal(err)
	}
	network := transport.NewMemory()
	all := join(t, network, boss, "a", "b")
	begun := make(chan struct{})
	var once sync.Once
	run, parts := over(t, all, []string{"a", "b", "a", "b"}, func(*process) actors.Spec {
		s := virtualRun(table, math.MaxInt32)
		s.OnEvent = func(event.Event) { once.Do(func() { close(begun) }) }
		return s
	})
	<-begun
	gone := errors.New("b is gone")
	for _, p := range []string{boss, "a"} {
		network.Block(p, "b")
	}
	for _, p := range all[:2] {
		p.mesh.Forget(all[2].id)
	}
	run.Lost([]int{1, 3}, gone)
	select {
	case <-run.Done():
	case <-time.After(time.Minute):
		t.Fatalf("the run does not end:\n%v", run.Status())
	}
	if out := run.Wait(); !errors.Is(out.Err, gone) {
		t.Errorf("the run ends with %v", out.Err)
	}
	parts[1].Kill() // as its lease's end does
	for _, p := range parts {
		p.Wait()
	}
}
