package stages_test

import (
	"reflect"
	"testing"

	"github.com/troupe-ml/troupe/stages"
)

// TestPackedExperts: packed matrices of experts change no bit, nor does a limit that leaves room for those of linear layers alone.
func TestPackedExperts(t *testing.T) {
	c := stages.Config{Family: stages.Qwen3MoE, Layers: 2, Hidden: 40, Heads: 4, KVHeads: 2, FFN: 40, Context: 8, Vocab: 19,
		RopeTheta: 1000, Experts: stages.ExpertConfig{Count: 5, PerToken: 2, Width: 36, Renormalize: true}}
	for _, half := range []bool{false, true} {
		o := stages.Options{Seed: 5, Optimizer: adamw, BF16: half}
		want := trainShared(t, c, o, 1, 1, largeWeights)
		for _, limit := range []int64{0, 1 << 19, 1} {
			o.Pack, o.PackBytes = true, limit
			if got := trainShared(t, c, o, 1, 1, largeWeights); !reflect.DeepEqual(got, want) {
				t.Errorf("bfloat16 %v: up to %d bytes of packed matrices change the losses, norms or weights", half, limit)
			}
		}
	}
}
