package bits

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// TestDocumentExperts: with documents, whose microbatches differ in length, the routers of a context group learn what those of one rank
// learn: what balances the loads of experts does not count the positions that a grid adds to a microbatch. Expert groups change no bit.
func TestDocumentExperts(t *testing.T) {
	base := []string{"data.train=" + testrun.PairsOf(t, 120), "data.format=documents", "run.steps=3", "run.eval_every=0",
		"model.family=qwen3_moe", "model.heads=4", "model.kv_heads=2", "model.experts=4", "model.expert_ffn=24", "model.context=24",
		"model.aux_loss_weight=1", "model.z_loss_weight=0.1", "batch.sequences=12", "batch.microbatch=3"}
	want := filepath.Join(t.TempDir(), "out")
	testrun.Train(t, want, base...)
	for name, sets := range map[string][]string{"context 2": {"parallel.context=2", "parallel.data=2"},
		"context 3": {"parallel.context=3"}} {
		if testrun.RaceDetector && name == "context 3" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			all := filepath.Join(t.TempDir(), "all")
			sets = slices.Concat(base, sets)
			testrun.Train(t, all, sets...)
			testrun.NearFiguresBy(t, want, all, 1e-5, 1e-4)
			if name == "context 2" {
				shared := filepath.Join(t.TempDir(), "shared")
				testrun.Train(t, shared, append(sets, "parallel.expert=4")...)
				testrun.SameFigures(t, all, shared)
			}
		})
	}
}
