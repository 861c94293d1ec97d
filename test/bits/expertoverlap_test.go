package bits

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// TestExpertOverlap: runs in which one pass of a pair computes while the tokens of the other travel have the bits of replicas with all
// experts, and go on under any other layout.
func TestExpertOverlap(t *testing.T) {
	_, _, few := testrun.Span()
	two := []string{"pipeline.stages=2", "parallel.expert=2"}
	overlap := "parallel.expert_overlap=true"
	for i, c := range []struct {
		name string
		sets []string
	}{
		{"qwen3_moe", []string{"model.family=qwen3_moe", "model.hidden=32", "model.expert_ffn=24", "model.kv_heads=2"}},
		{"deepseek_v3, bfloat16", []string{"model.family=deepseek_v3", "model.hidden=32", "model.expert_ffn=24", "model.n_group=2",
			"model.q_lora_rank=11", "device.dtype=bfloat16", "model.mtp_layers=1"}},
	} {
		if i > 0 && !testrun.Long {
			continue // make check-grids runs all
		}
		sets := slices.Concat(few, []string{"model.experts=8", "model.experts_per_token=3", "parallel.data=2",
			"model.aux_loss_weight=0.05"}, c.sets)
		want := filepath.Join(t.TempDir(), "want")
		testrun.Train(t, want, sets...)
		for j, l := range []struct {
			name string
			sets []string
		}{
			{"dualpipev", slices.Concat(two, []string{"pipeline.schedule=dualpipev", overlap})},
			{"1f1b, recomputed", slices.Concat(two, []string{"pipeline.schedule=1f1b", overlap, "pipeline.recompute=partial"})},
			{"one stage", []string{"parallel.expert=2", overlap}},
			{"eager-1f1b, 3 stages", []string{"pipeline.stages=3", "parallel.expert=2", "pipeline.schedule=eager-1f1b", overlap}},
			{"dualpipev, recomputed", slices.Concat(two, []string{"pipeline.schedule=dualpipev", overlap, "pipeline.recompute=full"})},
			{"dualpipev without overlap", slices.Concat(two, []string{"pipeline.schedule=dualpipev"})},
		} {
			if j > 0 && (!testrun.Long || testrun.RaceDetector) {
				continue
			}
			sameUnder(t, want, c.name+", "+l.name, slices.Concat(sets, l.sets))
		}
	}
}
