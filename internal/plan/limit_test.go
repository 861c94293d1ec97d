package plan_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/stages"
)

// TestMemoryLimit: the least device.memory_gib that is accepted is what the fullest rank takes, within 3 %, or where there are messages
// between stages 6 %, whatever comes between the steps: the last microbatch of a validation has fewer sequences here
// than others, and documents have any length.
func TestMemoryLimit(t *testing.T) {
	var text strings.Builder
	for i := range 160 {
		fmt.Fprintf(&text, "{\"text\": %q}\n", strings.Repeat("word ", 1+i*7%47))
	}
	documents := filepath.Join(t.TempDir(), "documents.jsonl")
	if err := os.WriteFile(documents, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	const exact = 0.03
	// What is under way between stages is in the pool of the stage that sent it, and counts for the one that receives it.
	const messages = 0.06
	for _, c := range []struct {
		sets string
		off  float64
	}{
		{"batch.sequences=4", exact},
		{"batch.sequences=8", exact},
		{"batch.sequences=12", exact},
		{"batch.sequences=32", exact},
		{"batch.microbatch=3 batch.sequences=12", exact},
		{"batch.microbatch=8", exact},
		{"model.family=llama", exact},
		{"model.family=llama pipeline.recompute=full", exact},
		{"pipeline.recompute=full", exact},
		{"pipeline.recompute=full batch.sequences=4", exact},
		{"model.tie_embeddings=false model.dropout=0.1", exact},
		{"model.layers=6", exact},
		{"model.mtp_layers=1", exact},
		{"device.dtype=bfloat16", exact},
		{"optimizer.name=sgd", exact},
		{"parallel.tensor=2", exact},
		{"parallel.tensor=2 parallel.sequence=true", exact},
		{"parallel.data=2", exact},
		{"parallel.data=2 parallel.zero=1", exact},
		{"parallel.context=2", exact},
		{"data.format=documents data.train=" + documents, exact},
		{"data.format=documents data.train=" + documents + " model.dropout=0.1 model.family=llama", exact},
		{"pipeline.stages=2", messages},
		{"pipeline.stages=2 pipeline.schedule=zb-h1", messages},
		{"pipeline.stages=2 pipeline.recompute=partial pipeline.recompute_keep=1", messages},
		{"pipeline.stages=2 pipeline.schedule=gpipe batch.sequences=64", messages},
		{"pipeline.stages=2 pipeline.chunks=2 model.layers=4", messages},
		{"pipeline.stages=2 pipeline.schedule=zb-v model.layers=4", messages},
		{"data.format=documents data.train=" + documents + " pipeline.stages=2", messages},
	} {
		sets := c.sets
		t.Run(strings.ReplaceAll(sets, documents, "…"), func(t *testing.T) {
			load := func(gib float64) *config.Config {
				cfg, err := config.Parse("limit.toml", []byte(`
run = {steps = 2, eval_every = 1}
model = {layers = 2, hidden = 64, context = 256, heads = 4, vocab = 256}
data = {train = ["../../testdata/troupe.txt"], val_fraction = 0.3}
batch = {sequences = 16, microbatch = 4}
`), append(strings.Fields(sets), "run.out="+t.TempDir(), fmt.Sprintf("device.memory_gib=%.12f", gib)), nil)
				if err != nil {
					t.Fatal(err)
				}
				return cfg
			}
			cfg := load(1)
			p, err := plan.New(cfg, cfg.Model.Vocab, stages.Config{})
			if err != nil {
				t.Fatal(err)
			}
			predicted, err := p.TensorBytes()
			if err != nil {
				t.Fatal(err)
			}
			least := slices.Max(predicted) + 1
			if _, err := troupe.Start(t.Context(), load(float64(least-1024)/(1<<30)), troupe.Options{}); !errors.Is(err, plan.ErrMemory) {
				t.Errorf("a limit of %d bytes, %d are needed: %v", least-1024, least, err)
			}
			run, err := troupe.Start(t.Context(), load(float64(least)/(1<<30)), troupe.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := run.Wait(); err != nil {
				t.Fatal(err)
			}
			taken := int64(0)
			for _, bytes := range run.StageMemory() {
				taken = max(taken, bytes)
			}
			ratio := float64(taken) / float64(least)
			t.Logf("%.3f", ratio)
			if math.Abs(ratio-1) > c.off {
				t.Errorf("%d bytes were taken, %d is the least limit that is accepted: %.3f", taken, least, ratio)
			}
		})
	}
}
