package stages_test

import (
	"fmt"
	"testing"

	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// zeroExperts is a model whose experts' matrices are large enough for parts of gradients and of weights. Three and six ranks cannot
// divide them evenly.
var zeroExperts = stages.Config{Family: stages.Qwen3MoE, Layers: 2, Hidden: 64, Heads: 4, KVHeads: 2, FFN: 40, Context: 8, Vocab: 19,
	RopeTheta: 1000, Experts: stages.ExpertConfig{Count: 8, PerToken: 2, Width: 64, Renormalize: true, AuxLossWeight: 0.1}}

// smallExperts is a model whose experts' matrices travel in buckets. Three and six ranks cannot divide them evenly.
var smallExperts = stages.Config{Family: stages.Qwen3MoE, Layers: 2, Hidden: 20, Heads: 4, KVHeads: 2, HeadDim: 6, FFN: 40, Context: 8,
	Vocab: 19, RopeTheta: 1000, Experts: stages.ExpertConfig{Count: 8, PerToken: 3, Width: 10, Dense: []int{0}}}

// TestExpertZero: with each level of ZeRO ranks that share experts have the losses, the norms, the weights and the optimizer state of
// ranks that have all experts and share nothing: where ranks with the same experts share them, evenly or not, and where there is only
// one.
func TestExpertZero(t *testing.T) {
	byMomentum := stages.Optimizer{Name: stages.SGD, Momentum: 0.9, EMA: 0.9}
	narrow := adamw
	narrow.State = tensorops.BFloat16
	for _, c := range []struct {
		name   string
		cfg    stages.Config
		o      stages.Options
		ranks  int
		groups []int
	}{
		{"small", smallExperts, stages.Options{Optimizer: adamw}, 4, []int{1, 2, 4}},
		{"small, uneven", smallExperts, stages.Options{Optimizer: adamw}, 6, []int{1, 2}},
		{"small, uneven, one section", smallExperts, stages.Options{Optimizer: byMomentum}, 3, []int{1}},
		{"large", zeroExperts, stages.Options{Optimizer: adamw}, 4, []int{2, 4}},
		{"large, uneven", zeroExperts, stages.Options{Optimizer: byMomentum}, 6, []int{1, 2}},
		{"large, bfloat16", zeroExperts, stages.Options{Optimizer: narrow, BF16: true}, 4, []int{2}},
		{"large, muon", zeroExperts, stages.Options{Optimizer: byMuon}, 4, []int{2, 4}},
		{"biases", withParts["biases"], stages.Options{Optimizer: adamw}, 4, []int{2, 4}},
		{"adapters", withParts["adapters beside frozen biases"], stages.Options{Optimizer: adamw, FrozenDType: tensorops.NF4}, 4,
			[]int{2, 4}},
		{"large, uneven, muon", zeroExperts, stages.Options{Optimizer: byMuon}, 6, []int{1, 2}},
	} {
		if raceDetector && c.name != "small, uneven" && c.name != "large" {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			c.o.Seed = 5
			want := trainShared(t, c.cfg, c.o, c.ranks, 1, largeWeights)
			for _, group := range c.groups {
				for zero := range 4 {
					if zero == 0 && group == 1 || raceDetector && zero == 2 {
						continue
					}
					t.Run(fmt.Sprintf("groups of %d, zero %d", group, zero), func(t *testing.T) {
						own := c.o
						own.Data.Zero = zero
						trainShared(t, c.cfg, own, c.ranks, group, largeWeights).mustBe(t, want, group)
						if group > 1 && zero >= 2 { // pairs of passes
							own.Experts.Overlap = true
							trainShared(t, c.cfg, own, c.ranks, group, largeWeights).mustBe(t, want, group)
						}
						if group > 1 && zero == 3 && !raceDetector {
							own.Data.HoldWeights = true
							trainShared(t, c.cfg, own, c.ranks, group, largeWeights).mustBe(t, want, group)
						}
					})
				}
			}
		})
	}
}

// zeroStage is a rank of 8, of a model with experts, on a stream that computes nothing.
func zeroStage(t *testing.T, cfg stages.Config, ranks, group, zero int) (*stages.Stage, *tensorops.DryStream, *stages.Model) {
	t.Helper()
	m, dry := newModel(t, cfg), tensorops.NewDryStream()
	o := stages.Options{Optimizer: adamw, Data: stages.DataParallel{Group: tensorops.DryGroup{Members: ranks}, Zero: zero}}
	if group > 1 {
		o.Experts = stages.ExpertParallel{Group: tensorops.DryGroup{Members: group}, Rows: cfg.Context}
		if group < ranks {
			o.Experts.Copies = tensorops.DryGroup{Members: ranks / group}
		}
	}
	s, err := stages.NewStage(m, dry, []stages.ChunkSpec{{Last: len(m.Symbols())}}, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, dry, m
}

// TestExpertZeroMemory: ranks with the same experts share their optimizer state, gradients and weights as replicas share those of all
// else; a rank that alone has its experts has all of them.
func TestExpertZeroMemory(t *testing.T) {
	const ranks = 8
	cfg := stages.Config{Family: stages.Qwen3MoE, Layers: 2, Hidden: 64, Heads: 4, KVHeads: 4, FFN: 64, Context: 16, Vocab: 100,
		RopeTheta: 1000, Experts: stages.ExpertConfig{Count: 8, PerToken: 2, Width: 256}}
	for _, group := range []int64{2, 4, 8} {
		for zero := range 4 {
			_, dry, m := zeroStage(t, cfg, ranks, int(group), zero)
			var experts, rest int64 // bytes of the weights of all experts, and of all else
			for _, p := range m.Params {
				if p.Experts() {
					experts += 4 * int64(p.Len())
				} else {
					rest += 4 * int64(p.Len())
				}
			}
			weights, grads, state := experts/group, experts, 2*experts/group // gradients: one for each rank of the group
			restState, exchange := 2*rest, int64(0)
			if zero > 0 {
				restState, exchange = restState/ranks, rest+rest/ranks // small parameters are copied
			}
			shared := group < ranks
			if shared && zero > 0 {
				state = 2 * experts / ranks
			}
			if shared && zero > 1 {
				grads = experts / ranks
			}
			if shared && zero > 2 {
				weights = experts / ranks
			}
			want := weights + grads + state + 2*rest + restState + exchange
			if got := dry.Memory().InUse; got < want || float64(got) > 1.02*float64(want) {
				t.Errorf("groups of %d, zero %d: %d bytes, want about %d", group, zero, got, want)
			}
		}
	}
}

// TestPairGathers: the passes of a pair gather a weight that both need at a time once, and each of them frees what only it needs. With
// HoldWeights the chunks of both stay whole.
func TestPairGathers(t *testing.T) {
	const ranks, group = 4, 2
	for _, c := range []struct {
		layers  int
		cuts    []int // after which layer each chunk ends; the pair is a forward of the first one and a backward of the last one
		hold    bool
		gathers int // of all layers, in the pair
		whole   int // layers whose weights are whole at a time, in the pair
	}{
		{2, []int{2}, false, 2, 2},      // each pass needs the layers of the other one
		{4, []int{4}, false, 6, 4},      // they meet in the middle
		{4, []int{2, 4}, false, 4, 4},   // they have none in common
		{4, []int{2, 4}, true, 0, 4},    // all are whole
		{6, []int{2, 4, 6}, true, 2, 4}, // the first chunk was left
	} {
		cfg := zeroExperts
		cfg.Layers, cfg.Context = c.layers, 2       // few activations beside the weights
		const ofLayer = 3 * 4 * 8 / group * 64 * 64 // bytes of the matrices of a rank's experts, which ranks have parts of
		m, dry := newModel(t, cfg), tensorops.NewDryStream()
		var chunks []stages.ChunkSpec
		first := 1
		for i, cut := range c.cuts {
			chunks = append(chunks, stages.ChunkSpec{Chunk: i, First: first, Last: 1 + cut})
			first = 1 + cut
		}
		s, err := stages.NewStage(m, dry, chunks, stages.Options{Optimizer: adamw,
			Data: stages.DataParallel{Group: tensorops.DryGroup{Members: ranks}, Zero: 3, WholeGrads: true, HoldWeights: c.hold},
			Experts: stages.ExpertParallel{Group: tensorops.DryGroup{Members: group}, Copies: tensorops.DryGroup{Members: ranks / group},
				Rows: cfg.Context, Overlap: true}})
		if err != nil {
			t.Fatal(err)
		}
		before := dry.Memory().InUse
		edge := func(l *tensorops.List) tensorops.Tensor {
			return l.Alloc(tensorops.Float32, 1, cfg.Context, cfg.Hidden)
		}
		act := func(l *tensorops.List, typ scheduler.Type, chunk, index int) func() {
			return func() {
				mb := microbatches(cfg, 1, 2, 1)[index]
				in := edge(l)
				for _, out := range stages.Act(l, s, scheduler.Action{Type: typ, Chunk: int32(chunk), Microbatch: int32(index)}, &mb, in) {
					l.Free(out)
				}
			}
		}
		var gathered int
		run := func(passes func(l *tensorops.List) []func()) {
			l := dry.NewList()
			stages.ActTogether(s, nil, passes(l)...)
			gathered = 0
			for _, op := range l.Ops() {
				if op.Kind == tensorops.KindCollective && op.Collective().What == tensorops.AllGather && op.Collective().Later {
					gathered++
				}
			}
			if err := tensorops.Run(dry, l); err != nil {
				t.Fatal(err)
			}
		}
		last := len(c.cuts) - 1
		alone := 0
		for chunk := range c.cuts {
			run(func(l *tensorops.List) []func() { return []func(){act(l, scheduler.F, chunk, 0)} })
			alone += gathered
		}
		each := alone / c.layers // weights of a layer
		if each == 0 || alone != each*c.layers {
			t.Fatalf("%+v: forwards gather %d weights of %d layers", c, alone, c.layers)
		}
		run(func(l *tensorops.List) []func() {
			return []func(){act(l, scheduler.F, 0, 1), act(l, scheduler.B, last, 0)}
		})
		if gathered != c.gathers*each {
			t.Errorf("%+v: the pair gathers %d weights, want those of %d layers, %d each", c, gathered, c.gathers, each)
		}
		if took := float64(dry.Memory().Peak-before) / ofLayer; took < float64(c.whole) || took > float64(c.whole)+1 {
			t.Errorf("%+v: the step takes the memory of the weights of %.2f layers", c, took)
		}
		l := dry.NewList()
		s.Reset(l)
		if err := tensorops.Run(dry, l); err != nil {
			t.Fatal(err)
		}
		if after := dry.Memory().InUse; after != before {
			t.Errorf("%+v: %d bytes before the step, and %d after", c, before, after)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestExpertZeroReset: a step that is abandoned while whole gradients and weights of experts exist leaves no memory.
func TestExpertZeroReset(t *testing.T) {
	for _, c := range []struct{ ranks, group, zero int }{{4, 2, 2}, {4, 2, 3}, {6, 1, 2}, {6, 1, 3}, {6, 2, 3}} {
		s, dry, _ := zeroStage(t, zeroExperts, c.ranks, c.group, c.zero)
		before := dry.Memory().InUse
		for range 2 {
			var held int64
			for i, mb := range microbatches(zeroExperts, 1, 6, 2)[:2] {
				l := dry.NewList()
				mb.Of = 3
				s.Forward(l, 0, &mb)
				s.Backward(l, 0, i)
				if err := tensorops.Run(dry, l); err != nil {
					t.Fatal(err)
				}
				held = dry.Memory().InUse
			}
			l := dry.NewList()
			s.Reset(l)
			if err := tensorops.Run(dry, l); err != nil {
				t.Fatal(err)
			}
			if after := dry.Memory().InUse; after != before || held <= before {
				t.Errorf("%+v: %d bytes before the step, %d during it and %d after it was abandoned", c, before, held, after)
			}
		}
	}
}
