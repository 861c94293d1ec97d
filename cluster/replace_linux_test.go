package cluster_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/telemetry"
)

// TestReplace: workers die at random moments, and free workers compute their ranks. The run repeats no decided step: no restart, no line
// twice, and the bits of an undisturbed run of the same grid.
func TestReplace(t *testing.T) {
	g := newGroup(t, &group{boss: settings{Silence: 2 * time.Second}})
	g.join(t, workers(6)...)
	for i, c := range []struct {
		name string
		sets []string
	}{
		{"pp2 dp2", []string{"parallel.data=2", "pipeline.stages=2", "run.eval_every=8", "optimizer.ema=0.9"}},
		{"tp2 dp2", []string{"parallel.tensor=2", "parallel.data=2"}},
		{"dp4, ahead", []string{"parallel.data=4", "pipeline.schedule=zb-h2", "pipeline.post_validation=true"}},
		{"cp2 pp2", []string{"parallel.context=2", "pipeline.stages=2"}},
	} {
		if i > 0 && !long {
			break
		}
		t.Run(c.name, func(t *testing.T) {
			const steps = 60
			sets := append([]string{fmt.Sprint("run.steps=", steps), "run.checkpoint_every=40", "run.eval_every=0", "run.keep=1",
				"cluster.max_restarts=0"}, c.sets...)
			want, out := filepath.Join(t.TempDir(), "want"), filepath.Join(t.TempDir(), "out")
			trainHere(t, command{Config: smallRun, Sets: keys(t, want, sets)})
			begin := g.line.place()
			g.ask(t, command{Do: "run", Config: smallRun, Sets: keys(t, out, sets), Workers: 6, Seconds: patience.Seconds()})
			at := func(step int) int {
				t.Helper()
				e := g.await(t, fmt.Sprintf("step %d", step), begin, patience, func(e event) bool {
					return e.Kind == "step" && e.Step >= step || ended(e)
				})
				if ended(e) {
					t.Fatalf("the run ended: %s\n%s", e.Error, g.describe())
				}
				return g.line.place()
			}
			for _, step := range []int{5, 20, 33} {
				place := at(step)
				lost := withRanks(t, g)
				if err := g.workers[lost].kill(); err != nil {
					t.Fatal(err)
				}
				e := g.await(t, "a replacement", place, patience, func(e event) bool {
					return e.Kind == "replace" || e.Kind == "restart" || ended(e)
				})
				if e.Kind != "replace" || !strings.Contains(e.Text, "worker "+lost) {
					t.Fatalf("after the loss of %s: %v\n%s", lost, e, g.describe())
				}
				g.join(t, lost)
			}
			if end := g.await(t, "the run to end", begin, 3*patience, ended); end.Error != "" {
				t.Fatalf("the run: %s\n%s", end.Error, g.describe())
			}
			sameRun(t, want, out, steps)
			marks, err := telemetry.ReadMarks(filepath.Join(out, "events.jsonl"))
			if err != nil {
				t.Fatal(err)
			}
			kinds := make(map[string]int)
			for _, m := range marks {
				kinds[m.Kind]++
			}
			if kinds[telemetry.MarkReplace] != 3 || kinds[telemetry.MarkRestart]+kinds[telemetry.MarkResume] > 0 {
				t.Errorf("the marks are %v", marks)
			}
		})
	}
}

// withRanks returns a worker that computes ranks: the last one in the status.
func withRanks(t *testing.T, g *group) (name string) {
	t.Helper()
	for line := range strings.Lines(g.ask(t, command{Do: "status"}).Text) {
		if of, rest, ok := strings.Cut(strings.TrimPrefix(line, "worker "), " at "); ok && strings.HasPrefix(line, "worker ") &&
			!strings.Contains(rest, "ranks []") {
			name = of
		}
	}
	if name == "" {
		t.Fatalf("no worker has ranks\n%s", g.describe())
	}
	return name
}

// TestReplaceKeepsPause: a paused run whose worker dies stays paused, at the same step, and takes a checkpoint of it on request.
func TestReplaceKeepsPause(t *testing.T) {
	g := newGroup(t, &group{boss: settings{Silence: 2 * time.Second}})
	g.join(t, workers(5)...)
	sets := []string{"run.steps=20", "run.checkpoint_every=0", "run.eval_every=0", "parallel.data=2", "pipeline.stages=2",
		"cluster.max_restarts=0"}
	want, out := filepath.Join(t.TempDir(), "want"), filepath.Join(t.TempDir(), "out")
	trainHere(t, command{Config: smallRun, Sets: keys(t, want, sets)})
	begin := g.line.place()
	pause := troupe.Change{Kind: troupe.ChangePause, Step: 7}
	g.ask(t, command{Do: "run", Config: smallRun, Sets: keys(t, out, sets), Workers: 5, Seconds: patience.Seconds(),
		Requests: []troupe.Change{pause}})
	if e := g.await(t, "the pause", begin, patience, kindOf("pause")); e.Step != 7 {
		t.Fatalf("the run pauses at step %d", e.Step)
	}
	place := g.line.place()
	if err := g.workers[withRanks(t, g)].kill(); err != nil {
		t.Fatal(err)
	}
	if e := g.await(t, "a replacement", place, patience, func(e event) bool { return e.Kind == "replace" || ended(e) }); e.Step != 7 {
		t.Fatalf("%v\n%s", e, g.describe())
	}
	g.ask(t, command{Do: "change", Change: troupe.Change{Kind: troupe.ChangeCheckpoint}})
	if e := g.await(t, "a checkpoint", place, patience, kindOf("checkpoint")); e.Step != 7 {
		t.Errorf("the checkpoint is of step %d", e.Step)
	}
	g.ask(t, command{Do: "change", Change: troupe.Change{Kind: troupe.ChangeResume}})
	if end := g.await(t, "the run to end", place, patience, ended); end.Error != "" {
		t.Fatalf("the run: %s\n%s", end.Error, g.describe())
	}
	sameRun(t, want, out, 20)
}
