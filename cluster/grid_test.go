package cluster_test

import (
	"maps"
	"path/filepath"
	"slices"
	"testing"
)

// grids are layouts with several ranks for each stage.
var grids = []struct {
	name    string
	sets    []string
	workers []int // from the start, and from step 2
}{
	{"tp2 pp2 dp2", []string{"parallel.tensor=2", "parallel.data=2", "pipeline.stages=2", "pipeline.schedule=zb-h1"}, []int{4, 2}},
	{"dp3, uneven, ahead", []string{"parallel.data=3", "pipeline.stages=2", "pipeline.schedule=zb-h2", "pipeline.post_validation=true"},
		[]int{2, 4}},
	{"tp2 sequence", []string{"parallel.tensor=2", "parallel.sequence=true"}, []int{2, 1}},
	{"tp 1, 2 and dp2", []string{"parallel.tensor=[1, 2]", "parallel.data=2", "parallel.zero=1", "pipeline.stages=2",
		"pipeline.schedule=1f1b"}, []int{4, 2}},
	{"cp2 pp2", []string{"parallel.context=2", "pipeline.stages=2", "pipeline.schedule=1f1b", "parallel.zero=1"}, []int{4, 2}},
	{"tp 2, 1 sequence", []string{"parallel.tensor=[2, 1]", "parallel.sequence=true", "pipeline.stages=2"}, []int{2, 1}},
}

// TestGridBits: a grid in several processes has bit-identical figures and files to the same grid in one process, also if the
// run resumes with another number of processes. Another grid can resume from any of its checkpoints.
func TestGridBits(t *testing.T) {
	groups := make(map[int]*group)
	for _, n := range []int{1, 2, 4} {
		groups[n] = newGroup(t, new(group))
	}
	for n, g := range groups {
		g.join(t, workers(n)...)
	}
	all := maps.Clone(families)
	const byMuon = "llama, muon"
	all[byMuon] = slices.Concat(families["llama, untied"], []string{muon})
	for family, sets := range all {
		for i, c := range grids {
			if raceDetector && (i > 0 || family != "llama, untied") || !long && i%2 == 1 && family == "llama, untied" ||
				!long && family == byMuon && i != 0 && i != 3 {
				continue // races don't depend on the numbers; make check-bits runs all
			}
			t.Run(family+", "+c.name, func(t *testing.T) {
				want, out := filepath.Join(t.TempDir(), "want"), filepath.Join(t.TempDir(), "out")
				run := command{Config: smallRun, Sets: keys(t, want, sets, c.sets)}
				trainHere(t, run)
				run.Sets = keys(t, out, sets, c.sets)
				for j, n := range c.workers {
					run.FromStep, run.Workers = 2*j, n
					if busy := groups[n].train(t, run); busy != n {
						t.Errorf("%d workers had ranks, want %d", busy, n)
					}
					sameRun(t, want, out, 6)
				}
				if !long && i%2 == 1 {
					return
				}
				// Under the next grid from the middle on: in several processes as in one.
				next := grids[(i+1)%len(grids)]
				here := command{Config: smallRun, Sets: keys(t, want, sets, next.sets), FromStep: 4}
				trainHere(t, here)
				n := next.workers[0]
				groups[n].train(t, command{Config: smallRun, Sets: keys(t, out, sets, next.sets), FromStep: 4, Workers: n})
				sameRun(t, want, out, 6)
			})
		}
	}
}

// TestRoundedEdges: rounding between chunks is the same within a process and between processes.
func TestRoundedEdges(t *testing.T) {
	g := newGroup(t, new(group))
	g.join(t, workers(2)...)
	want, out := filepath.Join(t.TempDir(), "want"), filepath.Join(t.TempDir(), "out")
	sets := []string{"parallel.data=2", "pipeline.stages=2", "pipeline.wire_dtype=bfloat16"}
	run := command{Config: smallRun, Sets: keys(t, want, families["llama, untied"], sets)}
	trainHere(t, run)
	run.Sets, run.Workers = keys(t, out, families["llama, untied"], sets), 2
	g.train(t, run)
	sameRun(t, want, out, 6)
}
