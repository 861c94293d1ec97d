package cluster_test

import (
	"path/filepath"
	"slices"
	"testing"
)

// experts are keys of a model whose experts the ranks of a group share.
var experts = []string{moe, "model.experts=4", "model.ffn=24"}

// globalBalance are keys of a balance loss for which replicas exchange loads in each backward pass.
var globalBalance = []string{"model.load_balancing_type=global_aux_loss", "model.aux_loss_weight=0.1"}

// TestExpertGroups: ranks in several processes that share experts, and the loads of their balance loss, have figures and files that are
// bit-identical to those of one process in which each rank has all experts, also if a run resumes with groups of another size
// or with ZeRO, and if passes that take turns gather weights.
func TestExpertGroups(t *testing.T) {
	g := newGroup(t, new(group))
	g.join(t, workers(4)...)
	want, out := filepath.Join(t.TempDir(), "want"), filepath.Join(t.TempDir(), "out")
	sets := slices.Concat(families["llama, untied"], experts, globalBalance, []string{"parallel.data=4"})
	trainHere(t, command{Config: smallRun, Sets: keys(t, want, sets)})
	for i, c := range [][]string{
		{"parallel.expert=4"},
		{"parallel.expert=2", "pipeline.stages=2", "pipeline.schedule=1f1b", "parallel.expert_overlap=true"},
		{"parallel.expert=2", "parallel.zero=3"},
	} {
		if raceDetector && i > 0 {
			break
		}
		g.train(t, command{Config: smallRun, Sets: keys(t, out, sets, c), FromStep: 2 * i, Workers: 4})
		sameRun(t, want, out, 6)
	}
	if raceDetector {
		return
	}
	// Matrices of which the ranks with the same experts have parts, and which two passes gather at the same time.
	want, out = filepath.Join(t.TempDir(), "want"), filepath.Join(t.TempDir(), "out")
	wider := slices.Concat(sets, []string{"model.hidden=64", "model.experts=8", "model.ffn=64"})
	trainHere(t, command{Config: smallRun, Sets: keys(t, want, wider)})
	g.train(t, command{Config: smallRun, Sets: keys(t, out, wider, []string{"parallel.expert=2", "parallel.zero=3", "pipeline.stages=2",
		"pipeline.schedule=1f1b", "parallel.expert_overlap=true"}), Workers: 4})
	sameRun(t, want, out, 6)
	// In tensor groups, and cut from context groups and replicas, beside such groups whose ranks have all experts.
	// With whole experts, cut from tensor groups and replicas.
	for _, c := range []struct {
		grid   []string
		expert string
	}{
		{[]string{"parallel.tensor=2"}, "parallel.expert=2"},
		{[]string{"parallel.context=2"}, "parallel.expert=4"},
		{[]string{"parallel.tensor=2", "parallel.expert_tensor=1"}, "parallel.expert=4"},
	} {
		want, out = filepath.Join(t.TempDir(), "want"), filepath.Join(t.TempDir(), "out")
		sets := slices.Concat(sets, []string{"parallel.data=2"}, c.grid)
		trainHere(t, command{Config: smallRun, Sets: keys(t, want, sets)})
		g.train(t, command{Config: smallRun, Sets: keys(t, out, sets, []string{c.expert}), Workers: 4})
		sameRun(t, want, out, 6)
	}
}
