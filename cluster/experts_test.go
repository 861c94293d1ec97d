package cluster_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// experts are keys of a model whose experts the ranks of a group share.
var experts = []string{moe, "model.experts=4", "model.ffn=24"}

// TestExpertGroups: ranks in several processes that share experts have figures and files that are bit-identical to those of one
// process in which each rank has all experts, also if a run resumes with groups of another size.
func TestExpertGroups(t *testing.T) {
	g := newGroup(t, new(group))
	g.join(t, workers(4)...)
	want, out := filepath.Join(t.TempDir(), "want"), filepath.Join(t.TempDir(), "out")
	sets := slices.Concat(families["llama, untied"], experts, []string{"parallel.data=4"})
	trainHere(t, command{Config: smallRun, Sets: keys(t, want, sets)})
	for i, c := range [][]string{
		{"parallel.expert=4"},
		{"parallel.expert=2", "pipeline.stages=2", "pipeline.schedule=zb-h1"},
	} {
		if raceDetector && i > 0 {
			break
		}
		g.train(t, command{Config: smallRun, Sets: keys(t, out, sets, c), FromStep: 2 * i, Workers: 4})
		sameRun(t, want, out, 6)
	}
}

// TestLostInExpertGroup: a worker that dies in a run whose ranks share experts is replaced. The run restarts from its last checkpoint
// without help, and has the bits of an undisturbed one.
func TestLostInExpertGroup(t *testing.T) {
	g := newGroup(t, &group{boss: settings{Silence: 2 * time.Second}})
	g.join(t, workers(2)...)
	sets := slices.Concat(experts, []string{"run.steps=30", "run.checkpoint_every=10", "run.eval_every=0", "run.keep=1",
		"cluster.max_restarts=20", "parallel.data=2", "parallel.expert=2"})
	want, out := filepath.Join(t.TempDir(), "want"), filepath.Join(t.TempDir(), "out")
	trainHere(t, command{Config: smallRun, Sets: keys(t, want, sets)})
	begin := g.line.place()
	g.ask(t, command{Do: "run", Config: smallRun, Sets: keys(t, out, sets), Workers: 2, Seconds: patience.Seconds()})
	const step = 12
	g.await(t, fmt.Sprintf("step %d", step), begin, patience, func(e event) bool { return e.Kind == "step" && e.Step >= step })
	place := g.line.place()
	if err := g.workers["worker-1"].kill(); err != nil {
		t.Fatal(err)
	}
	e := g.await(t, "a restart", place, patience, func(e event) bool { return e.Kind == "restart" || ended(e) })
	if e.Kind != "restart" || !strings.Contains(e.Text, " failed") {
		t.Fatalf("it goes on after %q, want the loss of a worker\n%s", e.Text+e.Error, g.describe())
	}
	if end := g.await(t, "the run to end", place, 3*patience, ended); end.Error != "" {
		t.Fatalf("the run: %s\n%s", end.Error, g.describe())
	}
	sameRun(t, want, out, 30)
}
