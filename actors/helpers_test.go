package actors_test

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/internal/base/rng"
	"github.com/troupe-ml/troupe/internal/run/trainstate"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry/event"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// families are small models of both families, with everything on.
var families = []stages.Config{
	{Family: stages.GPT2, Layers: 3, Hidden: 24, Heads: 4, KVHeads: 4, FFN: 40, Context: 10, Vocab: 19, Dropout: 0.1, Tie: true},
	{Family: stages.Llama, Layers: 3, Hidden: 24, Heads: 4, KVHeads: 2, FFN: 40, Context: 10, Vocab: 19, Dropout: 0.1, Tie: true,
		RopeTheta: 1000},
}

var adamw = stages.Optimizer{Name: stages.AdamW, Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, WeightDecay: 0.1}

func newDevice(t testing.TB, threads int) tensorops.Device {
	t.Helper()
	d, err := cpu.New(cpu.Options{Threads: threads})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// generate makes a table that must be possible.
func generate(t testing.TB, s scheduler.Spec) *scheduler.Table {
	t.Helper()
	table, err := scheduler.Generate(s)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// evalTable is a forward-only table for the ranks of a training table.
func evalTable(t testing.TB, train *scheduler.Table, microbatches int) *scheduler.Table {
	t.Helper()
	table, err := scheduler.Forwards(train.Placement, train.NumRanks(), (train.NumChunks+train.NumRanks()-1)/train.NumRanks(), microbatches)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// randomText is a Source of random tokens, some of whose targets are masked.
type randomText struct {
	vocab int
	lens  []int // of the validation windows
}

func (s randomText) fill(stream, first uint64, tokens, targets []int32) {
	k := rng.NewKey(99, stream)
	for i := range tokens {
		at := first + uint64(i)
		tokens[i] = int32(rng.Intn(k, 0, at, uint64(s.vocab)))
		targets[i] = int32(rng.Intn(k, 1, at, uint64(s.vocab)))
		if at%7 == 3 {
			targets[i] = tensorops.IgnoreTarget
		}
	}
}

func (s randomText) Train(step int64, index int, tokens, targets []int32) error {
	s.fill(uint64(step), uint64(index*len(tokens)), tokens, targets)
	return nil
}

func (s randomText) EvalWindows() int      { return len(s.lens) }
func (s randomText) EvalLen(index int) int { return s.lens[index] }

func (s randomText) EvalFill(index int, tokens, targets []int32) error {
	if len(tokens) != s.lens[index] {
		return fmt.Errorf("window %d has %d tokens, asked for %d", index, s.lens[index], len(tokens))
	}
	s.fill(1<<32, uint64(1000*index), tokens, targets)
	return nil
}

// log keeps what a run reports. It is safe for concurrent use.
type log struct {
	mu     sync.Mutex
	events []event.Event
	saves  []save
}

type save struct {
	state trainstate.State
	saved []stages.Saved
	best  bool
}

// source is that of what was saved.
func (s *save) source(p *stages.Param, part string, dst []float32) error {
	i := slices.IndexFunc(s.saved, func(s stages.Saved) bool { return s.Index == p.Index && s.Part == part })
	copy(dst, s.saved[i].Data)
	return nil
}

func (l *log) event(e event.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
}

func (l *log) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = l.events[:0]
}

func (l *log) write(_ context.Context, state trainstate.State, saved []stages.Saved, best bool) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range saved {
		saved[i].Data = slices.Clone(saved[i].Data) // it is the run's
	}
	slices.SortFunc(saved, func(a, b stages.Saved) int { return cmp.Or(a.Index-b.Index, strings.Compare(a.Part, b.Part)) })
	l.saves = append(l.saves, save{state, saved, best})
	return fmt.Sprintf("step-%d", state.Step), nil
}

// steps lists the step events.
func (l *log) steps() []event.StepEvent { return eventsOf[event.StepEvent](l) }

// eventsOf lists the events of one type.
func eventsOf[E any](l *log) (found []E) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		if e, ok := e.(E); ok {
			found = append(found, e)
		}
	}
	return found
}

// figures are a step's numbers to the last bit; NaN where there is none.
type figures struct {
	step                int
	loss, norm, valLoss uint64
}

func figuresOf(e event.StepEvent) figures {
	bits := func(v *float64) uint64 {
		if v == nil {
			return math.Float64bits(math.NaN())
		}
		return math.Float64bits(*v)
	}
	return figures{e.Step, bits(e.Loss), bits(e.GradNorm), bits(e.ValLoss)}
}

func (l *log) figures() (all []figures) {
	for _, e := range l.steps() {
		all = append(all, figuresOf(e))
	}
	return all
}

// start begins a run that the test ends in time, or fails with its status.
func start(t testing.TB, s actors.Spec) *actors.Run {
	t.Helper()
	if s.Run == uuid.Nil {
		s.Run = uuid.New()
	}
	run, err := actors.Start(s)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// patience is how long a busy machine may take for what a test waits for.
const patience = time.Minute

// wait waits for a run's end.
func wait(t testing.TB, run *actors.Run) actors.Outcome {
	t.Helper()
	select {
	case <-run.Done():
	case <-time.After(2 * patience):
		t.Fatalf("the run does not end:\n%v", run.Status())
	}
	return run.Wait()
}

// eventually waits until something holds; the run's status is in the message
// when it never does.
func eventually(t testing.TB, run *actors.Run, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s does not happen:\n%v", what, run.Status())
		}
	}
}

// training is a run of a small model.
type training struct {
	model     stages.Config
	threads   int
	table     *scheduler.Table
	cuts      []int // borders of the chunks in the model's layers
	recompute func(rank, microbatch int) bool
	evalLens  []int
	steps     int64
	from      *save            // go on from there
	optimizer stages.Optimizer // none: adamw
	load      stages.Source    // what is stored; none: from itself
	sending   func(m any)      // called before a message leaves a host; nil: nothing is
	started   func(host string, s *actors.Stages)
	// wrap may put something around a rank's stage.
	wrap func(rank int, c actors.Compute) actors.Compute
}

const (
	sequences      = 8
	microbatchSize = 1
	clipNorm       = 0.05
)

// chunks are those of a rank.
func (tr training) chunks(m *stages.Model, rank int) (all []stages.ChunkSpec) {
	first := 0
	for v, last := range append(slices.Clone(tr.cuts), len(m.Symbols())) {
		if tr.table.RankOf(v) == rank {
			all = append(all, stages.ChunkSpec{Chunk: v, First: first, Last: last})
		}
		first = last
	}
	return all
}

func (tr training) options() stages.Options {
	o := stages.Options{Seed: 5, Optimizer: tr.optimizer}
	if o.Optimizer.Name == "" {
		o.Optimizer = adamw
	}
	return o
}

// build makes a rank's stage.
func (tr training) build(m *stages.Model, rank int, s tensorops.Stream, load stages.Source, withState bool) (actors.Compute, error) {
	st, err := stages.NewStage(m, s, tr.chunks(m, rank), tr.options())
	if err != nil {
		return nil, err
	}
	var c actors.Compute = st
	if tr.wrap != nil {
		c = tr.wrap(rank, st)
	}
	return c, st.Load(load, withState)
}

// ring places the shadow of each rank with the next one.
func (tr training) ring() (at []int) {
	n := tr.table.NumRanks()
	for rank := range n {
		at = append(at, (rank+1)%n)
	}
	return at
}

// spec describes a training that reports to a log.
func (tr training) spec(t testing.TB, l *log) actors.Spec {
	t.Helper()
	m, err := stages.NewModel(tr.model)
	if err != nil {
		t.Fatal(err)
	}
	load := stages.InitWeights(5)
	var state trainstate.State
	if tr.from != nil {
		state, load = tr.from.state, tr.from.source
	}
	if tr.from != nil && tr.load != nil {
		load = tr.load
	}
	s := actors.Spec{
		Device: newDevice(t, tr.threads),
		Build: func(rank int, s tensorops.Stream) (actors.Compute, error) {
			return tr.build(m, rank, s, load, tr.from != nil)
		},
		BuildShadow: func(rank int, s tensorops.Stream) (*stages.Shadow, error) {
			return stages.NewShadow(m, s, tr.chunks(m, rank), tr.options())
		},
		TiedRanks: slices.Compact([]int{tr.table.RankOf(0), tr.table.RankOf(tr.table.NumChunks - 1)}),
		Table:     tr.table,
		Data:      randomText{tr.model.Vocab, tr.evalLens}, MicrobatchSize: microbatchSize, Context: tr.model.Context, Sequences: sequences,
		Recompute: tr.recompute,
		Rate:      stages.Rate{LR: 1e-2, MinLR: 1e-3, Warmup: 1, Steps: 6, Decay: "cosine"}, ClipNorm: clipNorm,
		Start: state, Steps: tr.steps, EvalEvery: 2,
		WriteCheckpoint: l.write, OnEvent: l.event,
	}
	if len(tr.evalLens) > 0 {
		s.EvalTable = evalTable(t, tr.table, (len(tr.evalLens)+microbatchSize-1)/microbatchSize)
	}
	return s
}

// run trains to the end.
func (tr training) run(t testing.TB) *log {
	t.Helper()
	l := &log{}
	if out := wait(t, start(t, tr.spec(t, l))); out.Err != nil {
		t.Fatal(out.Err)
	}
	return l
}
