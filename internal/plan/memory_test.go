package plan_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/stages"
)

// TestMemoryForecast: what a layout is said to need is about what it takes, and
// the part of a row that is looked at tells as much as all of it.
func TestMemoryForecast(t *testing.T) {
	for _, sets := range [][]string{
		{"pipeline.stages=1"},
		{"pipeline.stages=2"},
		{"pipeline.stages=4", "pipeline.schedule=gpipe"},
		{"pipeline.stages=3", "pipeline.layout=Et*3||tL"},
		{"pipeline.stages=2", "pipeline.chunks=2"},
		{"pipeline.stages=2", "pipeline.chunks=2", "pipeline.microbatch_group_size=4"},
		{"pipeline.stages=2", "pipeline.recompute=full"},
		{"pipeline.stages=3", "pipeline.schedule=zb-h2"},
		{"pipeline.stages=2", "pipeline.chunks=2", "pipeline.schedule=zb1p"},
		{"pipeline.stages=2", "pipeline.schedule=zb-v"},
		{"pipeline.stages=2", "pipeline.schedule=v-min"},
		{"pipeline.stages=2", "pipeline.schedule=dualpipev"},
		{"pipeline.stages=3", "pipeline.schedule=u-shape"},
		{"pipeline.stages=2", "pipeline.chunks=2", "pipeline.schedule=breadth-first"},
		{"pipeline.stages=2", "pipeline.defer_weights=6"},
		{"pipeline.stages=2", "pipeline.schedule=zb-h1", "pipeline.defer_weights=6"},
		{"pipeline.stages=3", "pipeline.schedule=zb-h2", "pipeline.post_validation=true"},
		{"pipeline.stages=2", "pipeline.post_validation=true", "optimizer.name=sgd"},
		{"pipeline.stages=2", "pipeline.schedule=zb-v", "pipeline.recompute=partial", "pipeline.recompute_keep=1"},
		{"pipeline.stages=2", "model.mtp_layers=2"},
		{"pipeline.stages=4", "model.mtp_layers=1", "model.tie_embeddings=false", "pipeline.layout=Ett|tt|m|L"},
		{"pipeline.stages=2", "pipeline.chunks=2", "pipeline.recompute=partial", "pipeline.recompute_keep=2"},
	} {
		t.Run(fmt.Sprint(sets), func(t *testing.T) {
			text := `
run = {steps = 2, eval_batches = 1}
model = {hidden = 32, context = 32, vocab = 1000}
data = {train = ["../../testdata/troupe.txt"]}
batch = {sequences = 24, microbatch = 1}
`
			cfg, err := config.Parse("memory.toml", []byte(text), append(sets, "run.out="+t.TempDir()), nil)
			if err != nil {
				t.Fatal(err)
			}
			p, err := plan.New(cfg, cfg.Model.Vocab, stages.Config{})
			if err != nil {
				t.Fatal(err)
			}
			ranks, err := p.MemoryBytes()
			if err != nil {
				t.Fatal(err)
			}
			var forecast int64
			for r, bytes := range ranks {
				whole, err := p.DryRun(r, p.Table().Ranks[r])
				if err != nil || bytes != whole {
					t.Errorf("rank %d: %d bytes, by its whole row %d, %v", r, bytes, whole, err)
				}
				forecast += bytes
			}
			run, err := troupe.Start(context.Background(), cfg, troupe.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := run.Wait(); err != nil {
				t.Fatal(err)
			}
			m := run.Memory("cpu")
			if float64(m.Taken) > 1.1*float64(forecast) || float64(m.Taken) < 0.9*float64(forecast) {
				t.Errorf("it took %d bytes, %d were predicted", m.Taken, forecast)
			}
		})
	}
}
