package plan_test

import (
	"os"
	"path/filepath"
	"testing"
)

// TestGlobalBalanceRefused: a balance loss over the step's tokens needs replicas with equally many microbatches, backwards in their order
// and loads that float32 counts.
func TestGlobalBalanceRefused(t *testing.T) {
	table := func(text string) []string {
		path := filepath.Join(t.TempDir(), "own.csv")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return []string{"pipeline.schedule=" + path, "pipeline.stages=1", "batch.sequences=2", "batch.microbatch=1"}
	}
	const key = "model.load_balancing_type"
	two := []string{"parallel.data=2", "batch.microbatch=1"}
	for _, c := range []struct {
		sets, more, want []string
	}{
		{two, []string{"batch.sequences=4"}, nil},
		{two, []string{"batch.sequences=5"}, []string{key, "5 microbatches a step", "2 replicas", "batch.sequences or batch.microbatch"}},
		{two, []string{"batch.sequences=5", "model.load_balancing_type=aux_loss"}, nil},
		{two, []string{"batch.sequences=5", "model.aux_loss_weight=0.0"}, nil},
		{two, []string{"batch.sequences=8", "pipeline.stages=2", "pipeline.schedule=zb-h2", "pipeline.post_validation=true"}, nil},
		{two, []string{"batch.sequences=4", "device.kind=cuda"}, nil},
		{table("0F0,0F1,0B0,0B1\n"), nil, nil},
		{table("0F0,0F1,0B1,0B0\n"), nil, []string{key, "out of the order of the microbatches", "ascending"}},
		{table("0F0,0F1,0I1,0I0,0W0,0W1\n"), nil, []string{key, "out of the order of the microbatches"}},
		{[]string{"model.context=65536", "batch.sequences=512"}, nil, []string{key, "33554432 tokens", "exact up to 16777216"}},
	} {
		sets := append([]string{"optimizer.name=adamw", "model.family=qwen3_moe", "model.load_balancing_type=global_aux_loss"}, c.sets...)
		checkPlan(t, append(sets, c.more...), c.want)
	}
}
