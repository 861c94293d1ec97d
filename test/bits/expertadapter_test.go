package bits

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// TestExpertGroupsAdapter: a run with adapters of attention and of experts has the bits of replicas with all experts if groups share
// them, and resumes under another size of the groups. Its frozen base may be stored in bfloat16 and in 8 bits.
func TestExpertGroupsAdapter(t *testing.T) {
	middle, end, few := testrun.Span()
	for i, c := range []struct {
		name string
		base []string
		sets []string
	}{
		{"biases", []string{"model.family=gpt_oss", "model.ffn=24", "model.hidden=32"}, []string{
			`adapter.targets=["q_proj", "o_proj", "experts.gate_up_proj", "experts.down_proj"]`}},
		{"shared expert, base in 8 bits", []string{"model.family=qwen2_moe", "model.expert_ffn=24", "model.shared_expert_ffn=16"}, []string{
			`adapter.targets=["v_proj", "experts.down_proj", "shared_expert.up_proj"]`, "model.frozen_dtype=int8",
			"adapter.save=mlp.gate"}},
	} {
		if i > 0 && !testrun.Long {
			continue // make check-grids runs all
		}
		t.Run(c.name, func(t *testing.T) {
			base := filepath.Join(t.TempDir(), "base")
			shape := append([]string{"model.experts=4", "model.experts_per_token=2", "model.kv_heads=2"}, c.base...)
			testrun.Train(t, base, slices.Concat(shape, []string{"run.steps=1", "run.eval_every=0", "run.checkpoint_every=0",
				"optimizer.warmup_steps=0"})...)
			sets := slices.Concat(shape, few, c.sets, []string{"adapter.rank=2", "model.from=" + base, "parallel.data=4"})
			want, out := filepath.Join(t.TempDir(), "want"), filepath.Join(t.TempDir(), "out")
			testrun.Train(t, want, sets...)
			testrun.Train(t, out, append(slices.Clone(sets), "parallel.expert=4")...)
			testrun.SameFigures(t, want, out)
			testrun.SameState(t, want, out, end)
			again := testrun.Rewind(t, out, middle)
			testrun.Train(t, again, slices.Concat(sets, []string{"parallel.expert=2", "pipeline.stages=2"})...)
			testrun.SameFigures(t, want, again)
			testrun.SameState(t, want, again, end)
		})
	}
}
