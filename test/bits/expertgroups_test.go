package bits

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// TestExpertGroups: runs whose ranks share the experts have the bits of replicas with all experts, of figures and of checkpoints,
// and resume under another size of the groups.
func TestExpertGroups(t *testing.T) {
	middle, end, few := testrun.Span()
	two := []string{"pipeline.stages=2"}
	for i, c := range []struct {
		name string
		sets []string
	}{
		{"plain", []string{"model.family=qwen3_moe", "model.hidden=32", "model.expert_ffn=24"}},
		{"biases", []string{"model.family=gpt_oss", "model.ffn=24", "model.window=6", "model.hidden=32"}},
		{"mixtral, bfloat16, momentum", []string{"model.family=mixtral", "model.ffn=40", "device.dtype=bfloat16", "optimizer.name=sgd"}},
		{"muon, frozen, uneven validation", []string{"model.family=qwen3_moe", "model.expert_ffn=24", "optimizer.name=muon",
			`model.freeze=["1"]`, "run.eval_batches=9", "data.val_fraction=0.005", "model.tie_embeddings=false"}},
		{"tensor groups", []string{"model.family=qwen2_moe", "model.expert_ffn=24", "parallel.tensor=2", "parallel.sequence=true"}},
	} {
		if i > 1 && !testrun.Long {
			continue // make check-grids runs all
		}
		sets := slices.Concat(few, []string{"model.experts=8", "model.experts_per_token=3", "model.kv_heads=2", "parallel.data=4",
			"model.aux_loss_weight=0.05"}, c.sets)
		want := filepath.Join(t.TempDir(), "want")
		testrun.Train(t, want, sets...)
		for j, l := range []struct {
			name string
			sets []string
		}{
			{"2", []string{"parallel.expert=2"}},
			{"4, zb-h1", slices.Concat(two, []string{"parallel.expert=4", "pipeline.schedule=zb-h1"})},
			{"2, 1f1b, recomputed", slices.Concat(two, []string{"parallel.expert=2", "pipeline.schedule=1f1b", "pipeline.recompute=full",
				"parallel.order=pp-tp-dp"})},
			{"4", []string{"parallel.expert=4", "parallel.overlap=false"}},
			{"2, zb-v", slices.Concat(two, []string{"parallel.expert=2", "pipeline.chunks=2", "pipeline.schedule=zb-v"})},
		} {
			if (testrun.RaceDetector || i > 0 && !testrun.Long) && j != 1 || j > 2 && !testrun.Long {
				continue
			}
			sameUnder(t, want, c.name+", "+l.name, slices.Concat(sets, l.sets))
		}
		if i > 0 {
			continue
		}
		out := filepath.Join(t.TempDir(), "out")
		testrun.Train(t, out, slices.Concat(sets, []string{"parallel.expert=4"})...)
		again := testrun.Rewind(t, out, middle)
		testrun.Train(t, again, slices.Concat(sets, two, []string{"parallel.expert=2"})...)
		testrun.SameFigures(t, want, again)
		testrun.SameState(t, want, again, end)
	}
}
