package grid

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// TestGridLayouts: in a grid too, where the layers stand, what is recomputed and when weight gradients are made
// change no bit.
func TestGridLayouts(t *testing.T) {
	mtp := []string{"model.mtp_layers=1"}
	grids := map[string][]string{
		"tp2 dp2":      {"parallel.tensor=2", "parallel.data=2"},
		"tp2 sequence": {"parallel.tensor=2", "parallel.sequence=true"},
		"dp2 zero":     {"parallel.data=2", "parallel.zero=1"},
	}
	for _, m := range []struct {
		name, grid string
		sets       []string
		layouts    [][]string
	}{
		{"gpt2, tied, dropout", "dp2 zero", []string{"model.dropout=0.1"}, [][]string{
			{"pipeline.stages=3", "pipeline.layout=Et*3||tL"},
			{"pipeline.stages=3", "pipeline.layout=E|t*4|L", "pipeline.recompute=partial", "pipeline.recompute_keep=1"},
			{"pipeline.stages=2", "pipeline.chunks=2", "pipeline.layout=E|tt|tt|L", "pipeline.schedule=zb-v"},
		}},
		{"gpt2, tied", "tp2 dp2", nil, [][]string{
			{"pipeline.stages=3", "pipeline.layout=Et|tt|tL", "pipeline.schedule=1f1b", "pipeline.defer_weights=1"},
			{"pipeline.stages=3", "pipeline.layout=E|t*4|L", "pipeline.schedule=zb-h1"},
			{"pipeline.stages=3", "pipeline.layout=Et*3||tL", "pipeline.recompute=full"},
		}},
		{"gpt2, tied, a further token", "tp2 sequence", mtp, [][]string{
			{"pipeline.stages=3", "pipeline.layout=Et|ttt|mL"},
			{"pipeline.stages=4", "pipeline.layout=Et*3|tm||L"},
			{"pipeline.stages=4", "pipeline.layout=Et|t*3|m|L", "pipeline.schedule=zb-h1"},
		}},
		{"llama, a further token, bfloat16", "tp2 dp2", append(mtp, "model.family=llama", "model.kv_heads=2", "model.tie_embeddings=false",
			"device.dtype=bfloat16"), [][]string{
			{"pipeline.stages=2", "pipeline.chunks=2", "pipeline.layout=Et|t|tt|mL", "pipeline.recompute=full"},
			{"pipeline.stages=4", "pipeline.layout=Et|t*3|m|L"},
		}},
	} {
		t.Run(m.name+", "+m.grid, func(t *testing.T) {
			base := append(slices.Concat(m.sets, grids[m.grid]), "run.steps=4", "run.eval_every=2", "run.checkpoint_every=4")
			want := filepath.Join(t.TempDir(), "want")
			testrun.Train(t, want, base...)
			for _, layout := range m.layouts {
				got := filepath.Join(t.TempDir(), "got")
				testrun.Train(t, got, slices.Concat(base, layout)...)
				testrun.SameFigures(t, want, got)
				testrun.SameState(t, want, got, 4)
				if t.Failed() {
					t.Fatalf("with %q", layout)
				}
			}
		})
	}
}
