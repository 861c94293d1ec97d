package bits

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// TestDocumentDropout: with documents, whose microbatches differ in length, dropout falls alike whatever the microbatch, and
// the groups of sequence, tensor and context parallelism: the address of a random number is of its sequence and position, not
// of the length that a microbatch was filled up to.
func TestDocumentDropout(t *testing.T) {
	base := []string{"data.train=" + testrun.PairsOf(t, 120), "data.format=documents", "run.steps=3", "run.eval_every=0", "model.dropout=0.2",
		"model.heads=4", "model.context=24", "batch.sequences=12"}
	want := filepath.Join(t.TempDir(), "out")
	testrun.Train(t, want, append(base, "batch.microbatch=1")...)
	alone := testrun.Records(t, want)
	cases := map[string][]string{
		"microbatches of 2":   {"batch.microbatch=2"},
		"microbatches of 6":   {"batch.microbatch=6"},
		"all in one":          {"batch.microbatch=12"},
		"tensor":              {"batch.microbatch=3", "parallel.tensor=2"},
		"tensor and sequence": {"batch.microbatch=2", "parallel.tensor=4", "parallel.sequence=true"},
		"context 2":           {"batch.microbatch=1", "parallel.context=2"},
		"context 3":           {"batch.microbatch=3", "parallel.context=3"},
		"context and tensor":  {"batch.microbatch=2", "parallel.context=2", "parallel.tensor=2"},
		"data":                {"batch.microbatch=2", "parallel.data=2"},
		"stages":              {"batch.microbatch=3", "pipeline.stages=2", "pipeline.schedule=1f1b"},
		"recomputed":          {"batch.microbatch=4", "pipeline.recompute=full"},
	}
	if testrun.Long {
		for i := range 150 {
			r := rand.New(rand.NewPCG(uint64(i), 43))
			pick := func(of ...int) int { return of[r.IntN(len(of))] }
			sets := []string{fmt.Sprintf("batch.microbatch=%d", pick(1, 2, 3, 6)), fmt.Sprintf("parallel.tensor=%d", pick(1, 2, 4)),
				fmt.Sprintf("parallel.context=%d", pick(1, 2, 3)),
				fmt.Sprintf("parallel.data=%d", pick(1, 2)), fmt.Sprintf("pipeline.stages=%d", pick(1, 2)), "pipeline.schedule=" +
					[]string{"1f1b", "gpipe", "zb-h1"}[r.IntN(3)]}
			cases[fmt.Sprintf("%d: %v", i, sets)] = sets
		}
	}
	for name, sets := range cases {
		t.Run(name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out")
			testrun.Train(t, out, append(append([]string{}, base...), sets...)...)
			got := testrun.Records(t, out)
			for i, r := range alone {
				if r.Loss != nil && (got[i].Loss == nil || *r.Loss-*got[i].Loss > 1e-5 || *got[i].Loss-*r.Loss > 1e-5) {
					t.Errorf("step %d: %s, alone %s", i, testrun.Figures(got[i]), testrun.Figures(r))
				}
			}
		})
	}
}
