package cluster_test

import (
	"path/filepath"
	"slices"
	"testing"
)

// TestZeroBits: replicas in several processes that share the optimizer's state, gradients or weights have figures and files
// that are bit-identical to those of plain replicas in one process, also if one kind resumes a run of the other.
func TestZeroBits(t *testing.T) {
	const processes = 4
	g := newGroup(t, new(group))
	g.join(t, workers(processes)...)
	for i, c := range []struct {
		name  string
		model []string
		first string // share of the optimizer's state, or more, in the first steps
		next  string // then
		sets  []string
	}{
		{"weights, tp2 pp2 dp2", []string{"model.hidden=192", "model.layers=12", "batch.sequences=4"}, "parallel.zero=3", "parallel.zero=1",
			[]string{"parallel.tensor=2", "parallel.sequence=true", "parallel.data=2", "pipeline.stages=2", "pipeline.schedule=zb-h1"}},
		{"muon, tp2 dp2", []string{"model.hidden=192", "model.layers=8", "batch.sequences=4", "optimizer.name=muon"}, "parallel.zero=3",
			"parallel.zero=1", []string{"parallel.tensor=2", "parallel.data=2"}},
		{"state in int8, dp4", []string{"model.hidden=128", "batch.sequences=4", "optimizer.state_dtype=int8"}, "parallel.zero=2",
			"parallel.zero=1", []string{"parallel.data=4"}},
		{"gradients, dp4", []string{"model.hidden=128", "batch.sequences=4"}, "parallel.zero=2", "parallel.zero=3", []string{"parallel.data=4"}},
	} {
		if i < 2 && !long {
			continue // make check-bits runs both
		}
		t.Run(c.name, func(t *testing.T) {
			want, out := filepath.Join(t.TempDir(), "want"), filepath.Join(t.TempDir(), "out")
			sets := slices.Concat(families["llama, untied"], c.model, c.sets)
			trainHere(t, command{Config: smallRun, Sets: keys(t, want, sets)})
			for j, zero := range []string{c.first, c.next} {
				g.train(t, command{Config: smallRun, Sets: keys(t, out, sets, []string{zero}), FromStep: 2 * j, Workers: processes})
				sameRun(t, want, out, 6)
			}
		})
	}
}
