package stages_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/troupe-ml/troupe/internal/collective"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// splitExperts are models with experts for the tests of splitModels: with all that a router has, biases, a shared expert of a width that
// does not divide, latent attention, and adapters.
var splitExperts = map[string]stages.Config{
	"mixtral": {Family: stages.Mixtral, Layers: 2, Hidden: 24, Heads: 4, KVHeads: 2, FFN: 16, Context: 8, Vocab: 19, Dropout: 0.1,
		RopeTheta: 1000, Window: 3, Experts: stages.ExpertConfig{Count: 4, PerToken: 2, Width: 16, Renormalize: true, AuxLossWeight: 0.1}},
	"qwen2_moe": {Family: stages.Qwen2MoE, Layers: 2, Hidden: 24, Heads: 4, KVHeads: 2, FFN: 40, Context: 8, Vocab: 19, Dropout: 0.1,
		RopeTheta: 1000, Experts: stages.ExpertConfig{Count: 5, PerToken: 3, Width: 12, SharedWidth: 21, SharedGate: true,
			AuxLossWeight: 0.1, Balance: stages.BalanceConfig{ZLossWeight: 0.05, Jitter: 0.2}}},
	"qwen3_moe, mtp": {Family: stages.Qwen3MoE, Layers: 2, Hidden: 24, Heads: 4, KVHeads: 2, HeadDim: 10, FFN: 40, Context: 8, Vocab: 19,
		RopeTheta: 1000, MTPLayers: 1, MTPWeight: 0.3, Experts: stages.ExpertConfig{Count: 4, PerToken: 2, Width: 12, Renormalize: true,
			Dense: []int{0}, AuxLossWeight: 0.1, Balance: stages.BalanceConfig{BySequence: true}}},
	"gpt_oss": {Family: stages.GPTOSS, Layers: 2, Hidden: 24, Heads: 4, KVHeads: 2, HeadDim: 6, FFN: 16, Context: 8, Vocab: 19,
		Dropout: 0.1, RopeTheta: 1000, AttentionBias: true, Window: 3, Full: []int{1}, Experts: stages.ExpertConfig{Count: 4, PerToken: 2,
			Width: 16, Renormalize: true, GateAlpha: 1.3}},
	"deepseek_v3": {Family: stages.DeepSeekV3, Layers: 2, Hidden: 22, Heads: 4, KVHeads: 4, FFN: 40, Context: 8, Vocab: 19, Dropout: 0.1,
		RopeTheta: 1000, AttentionBias: true,
		Latent: stages.LatentConfig{QRank: 9, KVRank: 7, Nope: 5, Rope: 4, Value: 6, Interleave: true},
		Experts: stages.ExpertConfig{Count: 6, PerToken: 3, Width: 12, Dense: []int{0}, Renormalize: true, SharedWidth: 24,
			AuxLossWeight: 0.1, Balance: stages.BalanceConfig{BiasRate: 0.01, Jitter: 0.1}, Router: stages.RouterConfig{Sigmoid: true,
				Bias: true, Groups: 3, TopGroups: 2, Scale: 1.7}}},
	"deepseek_v3, adapter": {Family: stages.DeepSeekV3, Layers: 1, Hidden: 22, Heads: 4, KVHeads: 4, FFN: 40, Context: 8, Vocab: 19,
		RopeTheta: 1000, Latent: stages.LatentConfig{KVRank: 7, Nope: 5, Rope: 2, Value: 9}, Experts: stages.ExpertConfig{Count: 3,
			PerToken: 2, Width: 12, SharedWidth: 12, Router: stages.RouterConfig{Sigmoid: true, Bias: true}},
		Adapter: &stages.Adapter{Rank: 3, Alpha: 6, Targets: []string{stages.AllLinear}}},
	"gpt_oss, adapter": {Family: stages.GPTOSS, Layers: 1, Hidden: 24, Heads: 4, KVHeads: 2, HeadDim: 6, FFN: 16, Context: 8, Vocab: 19,
		RopeTheta: 1000, Experts: stages.ExpertConfig{Count: 3, PerToken: 2, Width: 16, Renormalize: true},
		Adapter: &stages.Adapter{Rank: 3, Alpha: 6, Targets: []string{"q_proj", "experts.gate_up_proj", "down_proj"}}},
	"qwen2_moe, adapter": {Family: stages.Qwen2MoE, Layers: 1, Hidden: 24, Heads: 4, KVHeads: 2, FFN: 40, Context: 8, Vocab: 19,
		RopeTheta: 1000, Experts: stages.ExpertConfig{Count: 3, PerToken: 2, Width: 12, SharedWidth: 20, SharedGate: true},
		Adapter: &stages.Adapter{Rank: 3, Alpha: 6, Targets: []string{".*_proj", ".*shared_expert_gate"}}},
}

func init() { maps.Copy(splitModels, splitExperts) }

// TestTensorExpertsRefused: sizes that cannot share the experts are refused with the numbers.
func TestTensorExpertsRefused(t *testing.T) {
	for _, c := range []struct {
		cfg    stages.Config
		change func(c *stages.Config)
		size   int
		want   string // empty: nothing is refused
	}{
		{withShared, nil, 4, ""},
		{withShared, func(c *stages.Config) { c.Experts.Width = 18 }, 2, ""},
		{withShared, func(c *stages.Config) { c.Experts.Width = 18 }, 4,
			"tensor parallelism of 4: it does not divide the width of an expert, 18"},
		{withShared, func(c *stages.Config) { c.Experts.SharedWidth = 3 }, 4,
			"tensor parallelism of 4 exceeds the width of the shared expert, 3"},
		{deepSeek, nil, 3, "tensor parallelism of 3: the 4 heads are not a multiple of it"},
	} {
		if c.change != nil {
			c.change(&c.cfg)
		}
		err := newModel(t, c.cfg).CheckTensor(c.size)
		if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, stages.ErrModel) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s, %d ranks: %v, want %q", c.cfg.Family, c.size, err, c.want)
		}
	}
}

// TestTensorRouterStats: of a tensor group one rank says what the routers did, and it is what they do in the whole model.
func TestTensorRouterStats(t *testing.T) {
	dev, cfg := newDevice(t, 2), splitExperts["mixtral"]
	cfg.Dropout = 0
	m, mbs := newModel(t, cfg), microbatches(cfg, 2, 4, 2)
	stats := func(size int) (all [][]stages.RouterStats) {
		w := newTeam(t, dev, m, size, nil, stages.Options{Seed: 5, Optimizer: adamw})
		all = make([][]stages.RouterStats, size)
		w.each(func(r *teamRank) error {
			if _, err := r.passes(mbs, false); err != nil {
				return err
			}
			var of func() []stages.RouterStats
			err := r.run(func(l *tensorops.List) { of = r.stage.RouterStats(l) })
			all[r.rank] = of()
			return err
		})
		return all
	}
	want, got := stats(1), stats(2)
	if len(want[0]) != 2 || len(got[0]) != 2 || got[1] != nil {
		t.Fatalf("the whole model reports %+v, two ranks %+v", want, got)
	}
	for i, s := range want[0] {
		if g := got[0][i]; g.Layer != s.Layer || g.Rows != s.Rows || !reflect.DeepEqual(g.Counts, s.Counts) {
			t.Errorf("two ranks report %+v, the whole model %+v", g, s)
		}
	}
}

// TestTensorExpertsMemory: a rank has the experts' weights and state by the size of its group, and with the others all of them.
func TestTensorExpertsMemory(t *testing.T) {
	cfg := stages.Config{Family: stages.Qwen3MoE, Layers: 2, Hidden: 64, Heads: 4, KVHeads: 4, FFN: 64, Context: 16, Vocab: 100,
		RopeTheta: 1000, Experts: stages.ExpertConfig{Count: 8, PerToken: 2, Width: 256}}
	chunk := stages.ChunkSpec{First: 1, Last: 3}
	_, _, whole := dryStep(t, cfg, chunk, 1, false)
	for size, most := range map[int]float64{2: 0.52, 4: 0.28} {
		if _, _, part := dryStep(t, cfg, chunk, size, false); float64(part) > most*float64(whole) {
			t.Errorf("of %d ranks one has %d bytes of %d, want at most %v", size, part, whole, most)
		}
		m, sum := newModel(t, cfg), int64(0)
		for rank := range size {
			n, err := m.ShardParameters([]stages.ChunkSpec{chunk}, rank, size)
			if err != nil {
				t.Fatal(err)
			}
			sum += n
		}
		all := int64(2 * (8*cfg.Hidden + 2*cfg.Hidden + 2*cfg.Hidden/cfg.Heads)) // routers and norms, which every rank has
		if want := m.ParametersOf([]stages.ChunkSpec{chunk}) + int64(size-1)*all; sum != want {
			t.Errorf("%d ranks have %d parameters together, want %d", size, sum, want)
		}
	}
}

// crew makes one team of the ranks of replicas, each a tensor group, in which ranks of a number of replicas with the same place in their
// groups share the experts; with o.Experts.Whole so many consecutive ranks of all.
func crew(t *testing.T, m *stages.Model, o stages.Options, replicas, tensor, group int) *team {
	t.Helper()
	w := &team{t: t, model: m, specs: []stages.ChunkSpec{{Last: len(m.Symbols())}}, group: make([]*collective.Group, replicas*tensor)}
	var all []*collective.Group
	w.leave = func(err error) {
		for _, g := range all {
			g.Leave(err)
		}
	}
	options := make([]stages.Options, replicas*tensor)
	join := func(name string, ranks []int, as func(o *stages.Options, g *collective.Group)) {
		for i, g := range collective.Local(name, len(ranks)) {
			all = append(all, g)
			as(&options[ranks[i]], g)
		}
	}
	for rank := range options {
		options[rank] = o
	}
	for replica := range replicas {
		var ranks []int
		for place := range tensor {
			ranks = append(ranks, replica*tensor+place)
		}
		join("tp", ranks, func(o *stages.Options, g *collective.Group) {
			if w.group[ranks[g.Rank()]] = g; tensor > 1 {
				o.Tensor.Group = g
			}
		})
	}
	var sharers [][]int // the ranks from which expert groups are cut
	for place := range tensor {
		var ranks []int
		for replica := range replicas {
			ranks = append(ranks, replica*tensor+place)
		}
		join("dp", ranks, func(o *stages.Options, g *collective.Group) { o.Data.Group = g })
		if !o.Experts.Whole {
			sharers = append(sharers, ranks)
		}
	}
	rows := 2 * m.Config.Context
	if o.Experts.Whole {
		rows /= tensor
		sharers = [][]int{nil}
		for rank := range options {
			sharers[0] = append(sharers[0], rank)
		}
	}
	for _, ranks := range sharers {
		if group == 1 && !o.Experts.Whole {
			continue
		}
		for first := 0; first < len(ranks) && group > 1; first += group {
			join("ep", ranks[first:first+group], func(o *stages.Options, g *collective.Group) { o.Experts.Group, o.Experts.Rows = g, rows })
		}
		for first := range group {
			var copies []int
			for i := first; i < len(ranks); i += group {
				copies = append(copies, ranks[i])
			}
			join("edp", copies, func(o *stages.Options, g *collective.Group) {
				if len(copies) > 1 {
					o.Experts.Copies = g
				}
			})
		}
	}
	dev := newDevice(t, 2)
	for rank := range options {
		s := dev.NewStream(fmt.Sprint("rank ", rank))
		t.Cleanup(s.Close)
		st, err := stages.NewStage(m, s, w.specs, options[rank])
		if err != nil {
			t.Fatal(err)
		}
		w.ranks = append(w.ranks, &teamRank{team: w, rank: rank, stage: st, stream: s})
	}
	w.each(func(r *teamRank) error { return r.stage.Load(largeWeights, false) })
	return w
}

// trainCrew trains two steps of two microbatches on each replica. overlap: the forward of the second microbatch and the backward of the
// first are a pair.
func (w *team) trainCrew(tensor int, overlap bool) shared {
	w.t.Helper()
	const microbatches, sequences, steps = 2, 2, 2
	cfg, replicas := w.model.Config, len(w.ranks)/tensor
	out := shared{losses: make([]float64, steps*replicas*microbatches), norms: make(map[int]float64), state: make(map[string][]float32)}
	var mu sync.Mutex
	step := func(r *teamRank, step int) error {
		st, replica := r.stage, r.rank/tensor
		var mbs []stages.Microbatch
		for i := range microbatches {
			mb := stages.Microbatch{Step: int64(step + 1), Index: i, FirstSequence: (replica*microbatches + i) * sequences,
				Sequences: sequences, Positions: cfg.Context, Train: true, Of: microbatches, Recompute: i == 1}
			for k := range mb.Sequences * mb.Positions {
				mb.Tokens = append(mb.Tokens, int32((3*k+i+5*replica+7*step)%cfg.Vocab))
				mb.Targets = append(mb.Targets, int32((5*k+2*i+replica)%cfg.Vocab))
			}
			mbs = append(mbs, mb)
		}
		loss := func(i int) {
			if r.rank%tensor == 0 {
				out.losses[(step*replicas+replica)*microbatches+i], _ = st.Loss(0, i)
			}
		}
		forward := func(l *tensorops.List, i int) { st.Forward(l, 0, &mbs[i], tensorops.Tensor{}) }
		backward := func(l *tensorops.List, i int) { st.Backward(l, 0, i, tensorops.Tensor{}) }
		var passes []func(l *tensorops.List)
		for i := range microbatches {
			passes = append(passes, func(l *tensorops.List) { forward(l, i) }, func(l *tensorops.List) { loss(i); backward(l, i) })
		}
		if overlap {
			passes = []func(l *tensorops.List){passes[0], func(l *tensorops.List) {
				loss(0)
				stages.ActTogether(st, nil, func() { forward(l, 1) }, func() { backward(l, 0) })
			}, passes[3]}
		}
		for _, pass := range append(passes, st.GradNorms) {
			if err := r.run(pass); err != nil {
				return err
			}
		}
		mu.Lock()
		for _, n := range st.Norms(nil) {
			out.norms[n.Param] += n.Squared
		}
		mu.Unlock()
		return r.run(func(l *tensorops.List) { st.Apply(l, stages.Update{Count: step + 1, LR: 0.01, GradScale: 0.1}) })
	}
	w.each(func(r *teamRank) error {
		for i := range steps {
			if err := step(r, i); err != nil {
				return err
			}
		}
		var saved []stages.Saved
		if err := r.run(func(l *tensorops.List) { saved = r.stage.Save(l, nil) }); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		for _, v := range saved {
			numbers := slices.Clone(v.Data)
			for _, half := range tensorops.HostNumbers[uint16](v.Narrow) {
				numbers = append(numbers, float32(half))
			}
			if v.Whole == nil {
				out.state[v.Name] = numbers
				continue
			}
			if out.state[v.Name] == nil {
				out.state[v.Name] = make([]float32, product(v.Whole))
			}
			if err := v.Slice.Put(out.state[v.Name], numbers, v.Whole); err != nil {
				return err
			}
		}
		return nil
	})
	return out
}

// TestTensorExpertGroups: tensor groups whose ranks share experts with those of other replicas have the losses, the weights and the
// optimizer state of tensor groups with all experts, to the bit, and the losses of one rank for each replica within rounding.
func TestTensorExpertGroups(t *testing.T) {
	shared := splitExperts["qwen2_moe"]
	shared.Experts.Count = 4
	adapted := splitExperts["gpt_oss, adapter"]
	adapted.Experts.Count = 4
	narrow := adamw
	narrow.State = tensorops.BFloat16
	for name, c := range map[string]struct {
		cfg stages.Config
		o   stages.Options
	}{
		"adamw": {splitExperts["qwen3_moe, mtp"], stages.Options{Optimizer: adamw, Pack: true}},
		"sequence, bfloat16": {shared, stages.Options{Optimizer: stages.Optimizer{Name: stages.SGD, Momentum: 0.9}, BF16: true,
			Tensor: stages.TensorParallel{Sequence: true}}},
		"muon":               {splitExperts["mixtral"], stages.Options{Optimizer: byMuon}},
		"narrow state":       {splitExperts["mixtral"], stages.Options{Optimizer: narrow}},
		"biases":             {splitExperts["gpt_oss"], stages.Options{Optimizer: adamw, Tensor: stages.TensorParallel{Sequence: true}}},
		"adapters, bfloat16": {adapted, stages.Options{Optimizer: adamw, BF16: true, Residual: tensorops.BFloat16}},
	} {
		t.Run(name, func(t *testing.T) {
			const replicas, tensor = 4, 2
			c.o.Seed = 5
			m := newModel(t, c.cfg)
			want := crew(t, m, c.o, replicas, tensor, 1).trainCrew(tensor, false)
			one := crew(t, m, c.o, replicas, 1, 1).trainCrew(1, false)
			tolerance := 2e-6
			if c.o.BF16 {
				tolerance = 0.01
			}
			for i, loss := range one.losses[:len(one.losses)/2] { // of the first step
				if !(math.Abs(want.losses[i]-loss) <= tolerance*loss) {
					t.Errorf("loss %d is %v, of one rank for each replica %v", i, want.losses[i], loss)
				}
			}
			for _, group := range []int{2, 4} {
				for _, overlap := range []bool{false, true} {
					if overlap && group == 4 || raceDetector && group != 2 {
						continue
					}
					own := c.o
					own.Experts.Overlap = overlap
					crew(t, m, own, replicas, tensor, group).trainCrew(tensor, overlap).mustBe(t, want, group)
				}
			}
		})
	}
}
