package stages_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/troupe-ml/troupe/internal/base/rng"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu"
)

// families are small models of several families, with everything on.
var families = []stages.Config{
	{Family: stages.GPT2, Layers: 3, Hidden: 24, Heads: 4, KVHeads: 4, FFN: 40, Context: 10, Vocab: 19, Dropout: 0.1, Tie: true},
	{Family: stages.Llama, Layers: 3, Hidden: 24, Heads: 4, KVHeads: 2, FFN: 40, Context: 10, Vocab: 19, Dropout: 0.1, Tie: true,
		RopeTheta: 1000},
	{Family: stages.Qwen3, Layers: 3, Hidden: 24, Heads: 4, KVHeads: 2, HeadDim: 10, FFN: 40, Context: 10, Vocab: 19, Dropout: 0.1,
		RopeTheta: 1000, AttentionBias: true, Window: 4, Full: []int{1}},
	{Family: stages.OLMo3, Layers: 3, Hidden: 24, Heads: 4, KVHeads: 2, FFN: 40, Context: 10, Vocab: 19, Dropout: 0.1, RopeTheta: 1000,
		AttentionBias: true, WindowTheta: 500, Window: 4, Full: []int{1}},
	{Family: stages.Qwen3MoE, Layers: 3, Hidden: 24, Heads: 4, KVHeads: 2, HeadDim: 10, FFN: 40, Context: 10, Vocab: 19, Dropout: 0.1,
		RopeTheta: 1000, Experts: stages.ExpertConfig{Count: 5, PerToken: 3, Width: 20, Dense: []int{1}, Renormalize: true}},
	{Family: stages.Example, Layers: 3, Hidden: 24, Heads: 4, KVHeads: 2, FFN: 40, Context: 10, Vocab: 19, Dropout: 0.1, RopeTheta: 1000,
		NoRope: []int{1}, WindowTheta: 500, Window: 4, Full: []int{1}, ResidualScale: 0.4, AttentionScale: 0.7},
	passingModel,
}

func newDevice(t testing.TB, threads int) tensorops.Device {
	t.Helper()
	d, err := cpu.New(cpu.Options{Threads: threads})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

func newModel(t testing.TB, c stages.Config) *stages.Model {
	t.Helper()
	m, err := stages.NewModel(c)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

var adamw = stages.Optimizer{Name: stages.AdamW, Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, WeightDecay: 0.1}

// pipe runs a model cut in chunks, each a stage of its own on its own stream,
// one microbatch after the other: what the actors do, without them.
type pipe struct {
	t      testing.TB
	dev    tensorops.Device
	model  *stages.Model
	stages []*stages.Stage
	stream []tensorops.Stream
}

// newPipe cuts the model's layers at the given borders; all says that one rank
// holds every chunk.
func newPipe(t testing.TB, dev tensorops.Device, m *stages.Model, cuts []int, oneRank bool) *pipe {
	ranks := make([]int, len(cuts)+1)
	for i := range cuts {
		if !oneRank {
			ranks[i+1] = i + 1
		}
	}
	return newPipeOn(t, dev, m, cuts, ranks, stages.Options{Seed: 5, Optimizer: adamw, Pack: oneRank})
}

// newPipeOn says which rank each chunk is on.
func newPipeOn(t testing.TB, dev tensorops.Device, m *stages.Model, cuts, ranks []int, o stages.Options) *pipe {
	p := &pipe{t: t, dev: dev, model: m, stages: make([]*stages.Stage, len(ranks)), stream: make([]tensorops.Stream, len(ranks))}
	groups := make([][]stages.ChunkSpec, len(ranks))
	from := 0
	for i, to := range append(append([]int{}, cuts...), len(m.Symbols())) {
		groups[ranks[i]] = append(groups[ranks[i]], stages.ChunkSpec{Chunk: i, First: from, Last: to})
		from = to
	}
	for r, g := range groups {
		if len(g) == 0 {
			continue
		}
		s := dev.NewStream(fmt.Sprintf("rank %d", r))
		st, err := stages.NewStage(m, s, g, o)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range g {
			p.stages[c.Chunk], p.stream[c.Chunk] = st, s
		}
		if err := st.Load(stages.InitWeights(5), false); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func (p *pipe) run(v int, record func(l *tensorops.List)) {
	p.t.Helper()
	l := p.stream[v].NewList()
	record(l)
	if err := tensorops.Run(p.stream[v], l); err != nil {
		p.t.Fatal(err)
	}
}

// step trains on microbatches and returns the loss and the gradient's norm.
func (p *pipe) step(count int, mbs []stages.Microbatch, split bool) (loss, norm float64) {
	loss, norm, u := p.passes(count, mbs, split)
	p.eachStage(func(v int, s *stages.Stage) {
		p.run(v, func(l *tensorops.List) { s.Apply(l, u) })
	})
	return loss, norm
}

// passes makes the gradients of a step, and says what update they ask for.
func (p *pipe) passes(count int, mbs []stages.Microbatch, split bool) (loss, norm float64, u stages.Update) {
	acc := stages.NewAccumulator()
	for i := range mbs {
		var x, dy tensorops.Tensor
		for v, s := range p.stages {
			p.run(v, func(l *tensorops.List) { x = stages.Only(s.Forward(l, v, &mbs[i], x)) })
		}
		last := len(p.stages) - 1
		sum, n := p.stages[last].Loss(last, mbs[i].Index)
		if err := acc.Add(mbs[i].Index, stages.Report{Sum: sum, Targets: n}); err != nil {
			p.t.Fatal(err)
		}
		for v := last; v >= 0; v-- {
			p.run(v, func(l *tensorops.List) {
				if !split {
					dy = stages.Only(p.stages[v].Backward(l, v, mbs[i].Index, dy))
					return
				}
				dy = stages.Only(p.stages[v].InputGrad(l, v, mbs[i].Index, dy))
			})
			if split {
				p.run(v, func(l *tensorops.List) { p.stages[v].WeightGrad(l, v, mbs[i].Index) })
			}
		}
	}
	norm = p.norm()
	final := stages.LossScale(acc.Targets())
	scale := final * math.Min(1, 0.5/(math.Sqrt(norm)*final))
	return acc.Loss(), norm, stages.Update{Count: count, LR: 1e-2, GradScale: scale}
}

func (p *pipe) eachStage(do func(v int, s *stages.Stage)) {
	for v, s := range p.stages {
		if !slices.Contains(p.stages[:v], s) {
			do(v, s)
		}
	}
}

// norm exchanges tied gradients and adds the squared norms in the model's order.
func (p *pipe) norm() float64 {
	var sharing []*stages.Stage
	p.eachStage(func(_ int, s *stages.Stage) {
		if s.WantsTied() > 0 {
			sharing = append(sharing, s)
		}
	})
	// Each rank takes what the others sent, the last one's first.
	tied := make(map[*stages.Stage][]stages.TiedGrad)
	p.eachStage(func(v int, s *stages.Stage) {
		if slices.Contains(sharing, s) {
			p.run(v, func(l *tensorops.List) { tied[s] = s.TiedGrads(l, make([]stages.TensorPlace, len(sharing)-1)) })
		}
	})
	for _, to := range sharing {
		for _, from := range slices.Backward(sharing) {
			if from == to {
				continue
			}
			if err := to.TakeTied(tied[from][0]); err != nil {
				p.t.Fatal(err)
			}
			tied[from] = tied[from][1:]
		}
	}
	byParam := make([]float64, len(p.model.Params))
	p.eachStage(func(v int, s *stages.Stage) {
		p.run(v, s.GradNorms)
		for _, n := range s.Norms(nil) {
			byParam[n.Param] = n.Squared
		}
	})
	var sum float64
	for _, n := range byParam {
		sum += n
	}
	return sum
}

// microbatches makes a step's random tokens; every seventh target is masked.
func microbatches(c stages.Config, step int64, sequences, per int) []stages.Microbatch {
	k := rng.NewKey(99, uint64(step))
	var out []stages.Microbatch
	for first := 0; first < sequences; first += per {
		mb := stages.Microbatch{Step: step, Index: first / per, FirstSequence: first, Sequences: per, Positions: c.Context, Train: true}
		for i := range per * c.Context {
			at := uint64(first*c.Context + i)
			mb.Tokens = append(mb.Tokens, int32(rng.Intn(k, 0, at, uint64(c.Vocab))))
			target := int32(rng.Intn(k, 1, at, uint64(c.Vocab)))
			if at%7 == 3 {
				target = tensorops.IgnoreTarget
			}
			mb.Targets = append(mb.Targets, target)
		}
		out = append(out, mb)
	}
	return out
}

// The same bits however the layers are cut, whether chunks share a rank, with
// B or with I and W, with any recomputation, and for any number of threads.
func TestLayoutChangesNoBit(t *testing.T) {
	for _, cfg := range append(slices.Clone(families), globalFamily) {
		m := newModel(t, cfg)
		type result struct{ loss, norm float64 }
		train := func(threads int, cuts []int, oneRank, split bool, recompute func(i int) bool) (rs []result) {
			p := newPipe(t, newDevice(t, threads), m, cuts, oneRank)
			for step := range 4 {
				mbs := microbatches(cfg, int64(step+1), 6, 2)
				for i := range mbs {
					mbs[i].Recompute = recompute(i)
				}
				loss, norm := p.step(step+1, mbs, split)
				rs = append(rs, result{loss, norm})
			}
			return rs
		}
		never, always := func(int) bool { return false }, func(int) bool { return true }
		want := train(1, nil, true, false, never)
		if want[0].loss < 2.5 || want[0].loss > 3.5 || math.IsNaN(want[3].norm) {
			t.Fatalf("%s: the first loss is %g, expected about ln 19 = 2.94; norms %v", cfg.Family, want[0].loss, want)
		}
		for _, c := range []struct {
			name      string
			threads   int
			cuts      []int
			oneRank   bool
			split     bool
			recompute func(int) bool
		}{
			{"two ranks", 1, []int{2}, false, false, never},
			{"four ranks, embedding and head alone", 2, []int{1, 3, 4}, false, true, never},
			{"chunks of one rank", 2, []int{2, 3}, true, false, never},
			{"empty chunks", 1, []int{2, 2, 4}, false, false, never},
			{"recompute", 2, nil, true, true, always},
			{"recompute some", 1, []int{3}, false, false, func(i int) bool { return i%2 == 1 }},
			{"three threads, split", 3, []int{2}, false, true, never},
		} {
			for i, got := range train(c.threads, c.cuts, c.oneRank, c.split, c.recompute) {
				if got != want[i] {
					t.Errorf("%s, %s: step %d has %v, unpipelined %v", cfg.Family, c.name, i+1, got, want[i])
				}
			}
		}
	}
}

// A model that sees the same few sequences again and again learns them.
func TestLearns(t *testing.T) {
	for _, cfg := range families {
		cfg.Dropout = 0
		m := newModel(t, cfg)
		p := newPipe(t, newDevice(t, 2), m, nil, true)
		mbs := microbatches(cfg, 1, 4, 2)
		var first, last float64
		for i := range 60 {
			last, _ = p.step(i+1, mbs, false)
			if i == 0 {
				first = last
			}
		}
		if last > first/4 {
			t.Errorf("%s: loss %g after 60 steps on the same batch, %g before", cfg.Family, last, first)
		}
	}
}
