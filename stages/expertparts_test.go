package stages_test

import (
	"testing"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// withParts are models whose experts have more than matrices.
var withParts = map[string]stages.Config{
	"biases": {Family: stages.GPTOSS, Layers: 2, Hidden: 24, Heads: 4, KVHeads: 2, FFN: 12, Context: 8, Vocab: 19, RopeTheta: 1000,
		AttentionBias: true, Window: 3, Full: []int{1},
		Experts: stages.ExpertConfig{Count: 8, PerToken: 3, Width: 12, Renormalize: true, AuxLossWeight: 0.1}},
	"adapters beside frozen biases": {Family: stages.GPTOSS, Layers: 1, Hidden: 24, Heads: 4, KVHeads: 2, FFN: 12, Context: 8, Vocab: 19,
		RopeTheta: 1000, Experts: stages.ExpertConfig{Count: 4, PerToken: 2, Width: 12, Renormalize: true},
		Adapter: &stages.Adapter{Rank: 3, Alpha: 6, Targets: []string{"q_proj", "experts.gate_up_proj", "experts.down_proj"}}},
	"adapters of some matrices": {Family: stages.Qwen3MoE, Layers: 2, Hidden: 24, Heads: 4, KVHeads: 2, FFN: 40, Context: 8, Vocab: 19,
		RopeTheta: 1000, Experts: stages.ExpertConfig{Count: 4, PerToken: 2, Width: 12, Dense: []int{0}},
		Adapter: &stages.Adapter{Rank: 2, Alpha: 4, RSLoRA: true, Targets: []string{"o_proj", "experts.gate_up_proj"},
			Save: []string{"mlp.gate", "norm"}}},
	"dense adapters": {Family: stages.Qwen2MoE, Layers: 1, Hidden: 24, Heads: 4, KVHeads: 2, FFN: 40, Context: 8, Vocab: 19,
		RopeTheta: 1000, Experts: stages.ExpertConfig{Count: 4, PerToken: 2, Width: 12, SharedWidth: 20, SharedGate: true},
		Adapter: &stages.Adapter{Rank: 2, Alpha: 4, Dropout: 0.3, Targets: []string{stages.AllLinear}}},
}

// TestExpertParallelParts: biases and adapters of experts are divided as their matrices, trained or frozen, and the results are those of
// ranks that have all of them, to the bit.
func TestExpertParallelParts(t *testing.T) {
	for name, c := range withParts {
		kinds := map[string]stages.Options{"float32": {Seed: 5, Optimizer: adamw, Pack: true},
			"bfloat16": {Seed: 5, Optimizer: stages.Optimizer{Name: stages.SGD, Momentum: 0.9}, BF16: true}}
		if c.Adapter != nil {
			kinds["frozen in 4 bits"] = stages.Options{Seed: 5, Optimizer: adamw, FrozenDType: tensorops.NF4}
		}
		for kind, o := range kinds {
			if raceDetector && kind != "float32" {
				continue
			}
			t.Run(name+", "+kind, func(t *testing.T) {
				want := trainShared(t, c, o, 4, 1, largeWeights)
				for _, group := range []int{2, 4, -2} {
					own := o
					if group < 0 { // with overlap
						group, own.Experts.Overlap = -group, true
					}
					trainShared(t, c, own, 4, group, largeWeights).mustBe(t, want, group)
				}
			})
		}
	}
}

// TestExpertPartsMemory: a rank of a group of four has a quarter of each of the experts' parameters, frozen ones too, and all of the
// others.
func TestExpertPartsMemory(t *testing.T) {
	for name, c := range withParts {
		m, four := newModel(t, c), tensorops.DryGroup{Members: 4}
		count := func(o stages.Options) (trained, all int64) {
			s, err := stages.NewStage(m, tensorops.NewDryStream(), []stages.ChunkSpec{{Last: len(m.Symbols())}}, o)
			if err != nil {
				t.Fatal(err)
			}
			weights, state := s.SavedBytes()
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			return state / 8, weights / 4
		}
		o := stages.Options{Optimizer: adamw, Data: stages.DataParallel{Group: four}}
		trained, all := count(o)
		o.Experts = stages.ExpertParallel{Group: four}
		for _, p := range m.Params {
			if !p.Experts() {
				continue
			}
			away := int64(p.Len() - p.Len()/4)
			if !p.Frozen {
				trained -= away
			}
			if !p.Frozen || c.Adapter == nil {
				all -= away
			}
		}
		if gotTrained, gotAll := count(o); gotTrained != trained || gotAll != all {
			t.Errorf("%s: a rank saves %d weights and the state of %d, want %d and %d", name, gotAll, gotTrained, all, trained)
		}
	}
}
