package plan_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/safetensors"
	"github.com/troupe-ml/troupe/internal/tokenizer"
	"github.com/troupe-ml/troupe/stages"
)

// TestMemoryForecast: what a layout is said to need is about what it takes, and
// the part of a row that is looked at tells as much as all of it.
func TestMemoryForecast(t *testing.T) {
	for i, sets := range [][]string{
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
		{"parallel.data=3", "model.hidden=128"},
		{"parallel.data=3", "model.hidden=128", "parallel.zero=1"},
		{"parallel.data=4", "parallel.zero=1", "pipeline.stages=2", "model.freeze=embed", "model.tie_embeddings=false"},
		{"parallel.data=2", "parallel.zero=1", "pipeline.stages=2", "pipeline.post_validation=true"},
		{"parallel.tensor=2", "parallel.data=2", "parallel.zero=1", "pipeline.stages=2"},
		{"parallel.data=4", "batch.sequences=4", "parallel.zero=2", "model.hidden=128", "model.layers=8"},
		{"parallel.data=3", "parallel.zero=2", "pipeline.chunks=4", "pipeline.schedule=breadth-first", "model.hidden=128",
			"model.tie_embeddings=false"},
		{"parallel.data=2", "parallel.tensor=2", "parallel.zero=2", "pipeline.stages=2", "pipeline.chunks=2", "model.layers=8",
			"pipeline.schedule=breadth-first", "model.hidden=192"},
		{"parallel.data=2", "parallel.zero=3", "model.hidden=128", "model.layers=8"},
		{"parallel.data=3", "parallel.zero=3", "pipeline.stages=2", "model.hidden=128", "model.layers=8", "pipeline.schedule=zb-h1",
			"device.dtype=bfloat16"},
		{"parallel.data=3", "parallel.zero=3", "model.hidden=128", "model.layers=8", "model.freeze=['embed', '1-6']", "device.dtype=bfloat16",
			"model.family=llama"},
		{"parallel.data=2", "parallel.tensor=2", "parallel.sequence=true", "parallel.zero=3", "pipeline.stages=2", "pipeline.chunks=4",
			"model.layers=12", "pipeline.schedule=breadth-first", "model.hidden=192"},
		{"parallel.data=3", "parallel.zero=2", "model.hidden=128", "optimizer.name=muon"},
		{"parallel.tensor=2", "pipeline.stages=2", "model.hidden=128", "optimizer.name=muon"},
		{"parallel.data=2", "parallel.zero=3", "model.hidden=128", "model.layers=8", "optimizer.name=muon"},
		{"parallel.tensor=[1, 2]", "parallel.data=2", "parallel.zero=1", "pipeline.stages=2", "model.hidden=128", "optimizer.name=muon"},
		{"pipeline.stages=2", `model.freeze=["embed", "0-1"]`, "model.tie_embeddings=false"},
		{"pipeline.stages=2", `model.freeze=["embed", "1-2"]`, "device.dtype=bfloat16", "model.family=llama"},
		{"parallel.data=4", "parallel.expert=2", "parallel.zero=1", "pipeline.stages=2", "model.family=qwen3_moe", "model.hidden=128"},
		{"parallel.data=4", "parallel.expert=2", "parallel.zero=3", "model.family=qwen3_moe", "model.hidden=128", "model.expert_ffn=128",
			"model.layers=8"},
		{"parallel.data=4", "parallel.expert=2", "parallel.zero=3", "parallel.expert_overlap=true", "pipeline.stages=2",
			"pipeline.schedule=1f1b", "model.family=qwen3_moe", "model.hidden=128", "model.expert_ffn=128", "model.layers=8"},
		{"parallel.tensor=2", "parallel.expert_tensor=1", "parallel.data=2", "parallel.expert=2", "parallel.zero=1",
			"model.family=qwen3_moe", "model.hidden=128"},
		{"parallel.tensor=2", "parallel.expert_tensor=1", "parallel.expert=2", "parallel.sequence=true", "pipeline.stages=2",
			"model.family=qwen2_moe"},
	} {
		if i%2 == 0 && os.Getenv("TROUPE_LONG_TESTS") == "" {
			continue // make check-long runs all
		}
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
			for r, bytes := range ranks {
				whole, err := p.DryRun(r, p.Table().Ranks[r])
				if err != nil || bytes != whole {
					t.Errorf("rank %d: %d bytes, by its whole row %d, %v", r, bytes, whole, err)
				}
			}
			takes(t, cfg, p)
		})
	}
}

// takes runs a configuration, which must take about as much memory as its plan predicts.
func takes(t *testing.T, cfg *config.Config, p *plan.Plan) {
	t.Helper()
	forecast, err := p.AllTensorBytes()
	if err != nil {
		t.Fatal(err)
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
}

// TestPassingMemory: the forecast counts edges that are wider than the residual stream, and what layers keep of them.
func TestPassingMemory(t *testing.T) {
	c := stages.Config{Family: stages.Gemma4, Layers: 4, Hidden: 32, Heads: 4, KVHeads: 2, FFN: 48, Context: 64, Vocab: 256, Tie: true,
		RopeTheta: 1e4, Window: 9, Full: []int{1, 3}, LayerInput: 40, SharedKV: 2}
	m, f := newModel(t, c)
	for _, p := range m.Params {
		values := make([]float32, p.Len())
		must(t, stages.InitWeights(1)(p, "", values))
		f[p.Name] = safetensors.F32(p.Name, p.Shape, values)
	}
	from := directory(t, c, f, tokenizer.Bytes{})
	for _, sets := range [][]string{
		{"pipeline.stages=1"}, {"pipeline.stages=3", "pipeline.layout=E|tt|ttL"}, {"pipeline.stages=2", "pipeline.recompute=full"},
		{"pipeline.stages=2", "pipeline.schedule=zb-v"},
	} {
		t.Run(fmt.Sprint(sets), func(t *testing.T) {
			text := `
run = {steps = 2, eval_batches = 1}
data = {train = ["../../testdata/troupe.txt"]}
batch = {sequences = 12, microbatch = 2}
`
			cfg, err := config.Parse("memory.toml", []byte(text), append([]string{"run.out=" + t.TempDir(), "model.from=" + from}, sets...), nil)
			if err != nil {
				t.Fatal(err)
			}
			shaped, ckpt, err := plan.LoadFrom(cfg)
			if err != nil {
				t.Fatal(err)
			}
			must(t, ckpt.Close())
			p, err := plan.New(shaped, c.Vocab, c)
			if err != nil {
				t.Fatal(err)
			}
			takes(t, cfg, p)
		})
	}
}

// TestMemoryByRank: what each rank of a grid is said to need is within a tenth of what it takes.
func TestMemoryByRank(t *testing.T) {
	for _, sets := range [][]string{
		{"parallel.tensor=2"},
		{"parallel.tensor=2", "parallel.sequence=true", "pipeline.stages=2", "pipeline.schedule=1f1b"},
		{"parallel.tensor=[1, 2]", "pipeline.stages=2", "pipeline.schedule=1f1b"},
		{"parallel.data=2"},
		{"parallel.data=2", "parallel.zero=1"},
		{"parallel.data=4", "parallel.zero=1", "pipeline.stages=2", "pipeline.schedule=zb-h1"},
		{"parallel.data=4", "parallel.zero=2", "batch.sequences=4"},
		{"parallel.data=2", "parallel.zero=3"},
		{"parallel.tensor=2", "parallel.data=2", "parallel.zero=1", "pipeline.stages=2", "parallel.order=dp-pp-tp"},
		{"parallel.context=2", "model.context=128", "batch.microbatch=2"},
		{"parallel.context=2", "parallel.data=2", "parallel.zero=1", "pipeline.stages=2", "pipeline.schedule=1f1b"},
		{"parallel.context=2", "parallel.data=2", "parallel.expert=4", "model.family=qwen3_moe", "model.expert_ffn=64",
			"model.context=128"},
		{"parallel.tensor=2", "parallel.expert_tensor=1", "parallel.data=2", "parallel.expert=4", "model.family=qwen3_moe",
			"model.expert_ffn=64", "model.context=128"},
	} {
		t.Run(fmt.Sprint(sets), func(t *testing.T) {
			const text = `
run = {steps = 2, eval_batches = 1}
model = {layers = 8, hidden = 128, context = 32, vocab = 1000}
data = {train = ["../../testdata/troupe.txt"]}
batch = {sequences = 8, microbatch = 1}
`
			cfg, err := config.Parse("memory.toml", []byte(text), append(sets, "run.out="+t.TempDir()), nil)
			if err != nil {
				t.Fatal(err)
			}
			p, err := plan.New(cfg, cfg.Model.Vocab, stages.Config{})
			if err != nil {
				t.Fatal(err)
			}
			predicted, err := p.TensorBytes()
			if err != nil {
				t.Fatal(err)
			}
			run, err := troupe.Start(t.Context(), cfg, troupe.Options{})
			if err != nil {
				t.Fatal(err)
			}
			names := make(map[int]string) // by rank
			for _, a := range run.Status().Actors {
				if strings.HasPrefix(a.Actor, "stage ") {
					names[a.Rank] = a.Actor
				}
			}
			if _, err := run.Wait(); err != nil {
				t.Fatal(err)
			}
			taken := run.StageMemory()
			if len(names) != len(predicted) {
				t.Fatalf("%d stages, %d ranks: %v", len(names), len(predicted), names)
			}
			for rank, name := range names {
				if got, want := float64(taken[name]), float64(predicted[rank]); got < 0.9*want || got > 1.1*want {
					t.Errorf("rank %d, %s, took %.0f bytes, %.0f were predicted: %.3f", rank, name, got, want, want/got)
				}
			}
		})
	}
}
