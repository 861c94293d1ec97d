package stages_test

import (
	"errors"
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// splitExperts are models with experts for the tests of splitModels: with all that a router has, biases, a shared expert of a width that
// does not divide, and adapters.
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
		{deepSeek, nil, 2, "tensor parallelism of 2: it is not supported with latent attention"},
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
