package bits

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// TestExpertGroupsZero: ranks that share the experts, and with ZeRO what replicas share, have the bits of replicas with all experts that
// share nothing, of figures and of checkpoints, and resume under another size of the groups and another level.
func TestExpertGroupsZero(t *testing.T) {
	middle, end, few := testrun.Span()
	two := []string{"pipeline.stages=2", "pipeline.schedule=1f1b"}
	for i, c := range []struct {
		name string
		sets []string
	}{
		{"plain", []string{"model.family=qwen3_moe", "model.hidden=64", "model.expert_ffn=64"}},
		{"mixtral, bfloat16, narrow state, average", []string{"model.family=mixtral", "model.hidden=64", "model.ffn=64",
			"device.dtype=bfloat16", "optimizer.state_dtype=bfloat16", "optimizer.ema=0.9"}},
		{"muon, frozen, uneven validation", []string{"model.family=qwen3_moe", "model.hidden=64", "model.expert_ffn=64",
			"optimizer.name=muon", `model.freeze=["1"]`, "run.eval_batches=9", "data.val_fraction=0.005", "model.tie_embeddings=false"}},
	} {
		if i > 0 && !testrun.Long {
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
			{"2, zero 1", []string{"parallel.expert=2", "parallel.zero=1"}},
			{"2, zero 3, 1f1b", slices.Concat(two, []string{"parallel.expert=2", "parallel.zero=3"})},
			{"2, zero 3, 1f1b, overlap", slices.Concat(two, []string{"parallel.expert=2", "parallel.zero=3",
				"parallel.expert_overlap=true"})},
			{"2, zero 3, eager-1f1b, overlap, recomputed", []string{"pipeline.stages=2", "parallel.expert=2", "parallel.zero=3",
				"parallel.expert_overlap=true", "pipeline.schedule=eager-1f1b", "pipeline.recompute=full"}},
			{"4, zero 2", []string{"parallel.expert=4", "parallel.zero=2"}},
			{"2, zero 2, 1f1b, overlap", slices.Concat(two, []string{"parallel.expert=2", "parallel.zero=2",
				"parallel.expert_overlap=true"})},
			{"2, zero 3, breadth-first", []string{"parallel.expert=2", "parallel.zero=3", "pipeline.chunks=4",
				"pipeline.schedule=breadth-first"}},
		} {
			if testrun.RaceDetector && j != 1 || j > 2 && !testrun.Long {
				continue
			}
			sameUnder(t, want, c.name+", "+l.name, slices.Concat(sets, l.sets))
		}
		if i > 0 {
			continue
		}
		out := filepath.Join(t.TempDir(), "out")
		testrun.Train(t, out, slices.Concat(sets, []string{"parallel.expert=4", "parallel.zero=2"})...)
		again := testrun.Rewind(t, out, middle)
		testrun.Train(t, again, slices.Concat(sets, two, []string{"parallel.expert=2", "parallel.zero=1"})...)
		testrun.SameFigures(t, want, again)
		testrun.SameState(t, want, again, end)
	}
}

// TestExpertPairsZero: with ZeRO-3 pairs whose passes are of different chunks, and gather weights at the same time, have the bits of
// replicas with all experts and weights.
func TestExpertPairsZero(t *testing.T) {
	if !testrun.Long || testrun.RaceDetector {
		t.Skip("make check-grids runs it")
	}
	_, _, few := testrun.Span()
	sets, want := slices.Concat(few, []string{"model.family=qwen3_moe", "model.hidden=64", "model.expert_ffn=64", "model.experts=8",
		"model.kv_heads=2", "parallel.data=4", "batch.sequences=16"}), filepath.Join(t.TempDir(), "want")
	testrun.Train(t, want, sets...)
	pairs := []string{"parallel.expert=2", "parallel.zero=3", "parallel.expert_overlap=true", "pipeline.stages=2",
		"pipeline.schedule=dualpipev"}
	for _, recompute := range []string{"none", "full"} {
		sameUnder(t, want, "dualpipev, recompute "+recompute, slices.Concat(sets, pairs, []string{"pipeline.recompute=" + recompute}))
	}
}

// TestZeroUnevenExperts: norms, by which gradients are clipped, have the same bits with ZeRO if the replicas cannot divide the matrices
// of experts evenly, also in expert groups.
func TestZeroUnevenExperts(t *testing.T) {
	_, _, few := testrun.Span()
	sets := slices.Concat(few, []string{"model.family=qwen3_moe", "model.hidden=20", "model.head_dim=6", "model.expert_ffn=10",
		"model.experts=8", "model.kv_heads=2", "batch.sequences=6"})
	for data, layouts := range map[string][][]string{
		"parallel.data=3": {{"parallel.zero=1"}},
		"parallel.data=6": {{"parallel.expert=2"}, {"parallel.zero=2"}, {"parallel.expert=2", "parallel.zero=1"}},
	} {
		of, want := append(slices.Clone(sets), data), filepath.Join(t.TempDir(), "want")
		testrun.Train(t, want, of...)
		for i, layout := range layouts {
			if i == 0 || !testrun.RaceDetector {
				sameUnder(t, want, data+" "+layout[len(layout)-1], slices.Concat(of, layout))
			}
		}
	}
}

// TestExpertGroupsZeroInGrids: expert groups with ZeRO have the bits of the same grid without both, in tensor groups, in context groups
// and with biases of experts.
func TestExpertGroupsZeroInGrids(t *testing.T) {
	_, _, few := testrun.Span()
	qwen := []string{"model.family=qwen3_moe", "model.hidden=64", "model.expert_ffn=64", "model.experts=8", "model.kv_heads=2"}
	for i, c := range []struct {
		name    string
		sets    []string
		layouts [][]string
	}{
		{"tensor groups", append(slices.Clone(qwen), "parallel.tensor=2", "parallel.data=4"), [][]string{
			{"parallel.expert=2", "parallel.zero=3"}, {"parallel.expert=2", "parallel.zero=1"}, {"parallel.expert=4", "parallel.zero=2"}}},
		{"context groups", append(slices.Clone(qwen), "parallel.context=2", "parallel.data=2"), [][]string{
			{"parallel.expert=2", "parallel.zero=3"}, {"parallel.expert=4", "parallel.zero=1"}}},
		{"biases", []string{"model.family=gpt_oss", "model.hidden=64", "model.ffn=64", "model.experts=4", "model.kv_heads=2",
			"parallel.data=4"}, [][]string{{"parallel.expert=2", "parallel.zero=3"}, {"parallel.expert=2", "parallel.zero=1"},
			{"parallel.expert=4", "parallel.zero=2"}}},
		{"tensor groups, muon", append(slices.Clone(qwen), "parallel.tensor=2", "parallel.data=4", "optimizer.name=muon"), [][]string{
			{"parallel.expert=2", "parallel.zero=1"}, {"parallel.expert=4", "parallel.zero=3"}}},
	} {
		if i > 0 && (!testrun.Long || testrun.RaceDetector) {
			continue // make check-grids runs all
		}
		sets, want := slices.Concat(few, c.sets), filepath.Join(t.TempDir(), "want")
		testrun.Train(t, want, sets...)
		for j, layout := range c.layouts {
			if j == 0 || testrun.Long && !testrun.RaceDetector {
				sameUnder(t, want, c.name+" "+layout[0]+" "+layout[1], slices.Concat(sets, layout))
			}
		}
	}
}
