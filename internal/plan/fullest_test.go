package plan_test

import (
	"testing"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/stages"
)

// forecastPlan is the plan of a test of forecasts, of what a configuration starts with and some settings.
func forecastPlan(t *testing.T, text string, sets ...string) (*config.Config, *plan.Plan) {
	t.Helper()
	cfg, err := config.Parse("memory.toml", []byte(text), append(sets, "run.out="+t.TempDir()), nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.New(cfg, cfg.Model.Vocab, stages.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return cfg, p
}

// TestFullestRank: the forecast of a stage is what the fullest of its ranks takes, which need not be the first: other ranks are homes of
// other matrices, or have longer slices.
func TestFullestRank(t *testing.T) {
	const text = `
run = {steps = 2, eval_batches = 1}
data = {train = ["../../testdata/troupe.txt"]}
`
	for _, c := range []struct {
		sets   []string
		first  bool // the first rank is the fullest
		places int  // number of the stage's ranks whose update is recorded: of those with the same shapes, one
	}{
		{[]string{"model.family=qwen3_moe", "model.layers=1", "model.hidden=512", "model.heads=8", "model.kv_heads=8", "model.head_dim=128",
			"model.experts=128", "model.experts_per_token=2", "model.expert_ffn=32", "model.ffn=64", "model.context=8", "model.vocab=256",
			"batch.sequences=8", "batch.microbatch=1", "parallel.data=8", "parallel.zero=1", "optimizer.name=muon"}, false, 5},
		{[]string{"model.family=qwen3_moe", "model.layers=1", "model.hidden=512", "model.heads=8", "model.kv_heads=8", "model.head_dim=128",
			"model.experts=128", "model.experts_per_token=2", "model.expert_ffn=32", "model.ffn=64", "model.context=8", "model.vocab=256",
			"batch.sequences=8", "batch.microbatch=1", "parallel.data=8", "parallel.expert=2", "parallel.zero=1",
			"optimizer.name=muon"}, true, 5},
		{[]string{"model.family=llama", "model.layers=2", "model.hidden=64", "model.heads=4", "model.ffn=162", "model.vocab=1003",
			"model.context=8", "batch.sequences=4", "batch.microbatch=1", "parallel.tensor=4"}, false, 4},
		{[]string{"model.family=llama", "model.layers=2", "model.hidden=64", "model.heads=4", "model.ffn=162", "model.vocab=1003",
			"model.context=8", "batch.sequences=4", "batch.microbatch=1", "parallel.tensor=4", "parallel.data=2", "parallel.zero=1",
			"optimizer.name=muon"}, true, 8},
		{[]string{"model.family=llama", "model.layers=2", "model.hidden=64", "model.heads=4", "model.ffn=160", "model.vocab=1000",
			"model.context=8", "batch.sequences=4", "batch.microbatch=1", "parallel.tensor=4", "parallel.data=2"}, true, 4},
	} {
		_, p := forecastPlan(t, text, c.sets...)
		forecast, err := p.MemoryBytes()
		if err != nil {
			t.Fatal(err)
		}
		if places, err := p.UpdatePlaces(0); err != nil || places != c.places {
			t.Errorf("%v: %d ranks are looked at, want %d; %v", c.sets, places, c.places, err)
		}
		var first, most int64
		for replica := range p.Grid().Size(grid.Copies) {
			for tensor := range p.Grid().TensorSize(0) {
				bytes, err := p.DryRunAt(0, tensor, replica)
				if err != nil {
					t.Fatal(err)
				}
				if most = max(most, bytes); replica == 0 && tensor == 0 {
					first = bytes
				}
			}
		}
		if forecast[0] != most || (first == most) != c.first {
			t.Errorf("%v: forecast of %d bytes, the fullest rank takes %d, the first %d", c.sets, forecast[0], most, first)
		}
	}
}
