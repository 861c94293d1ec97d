package cluster_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/troupe-ml/troupe/telemetry"
)

// TestDrain: if workers are drained in the middle of a step, others get their ranks when the step has ended, so no step is computed again.
// A step that takes too long is abandoned.
func TestDrain(t *testing.T) {
	for _, c := range []struct {
		name     string
		handOver time.Duration
		steps    int
		drained  []int // ranks
		source   []string
	}{
		{"shadows", 0, 16, []int{1, 0, 2}, []string{"pipeline.stages=3", `cluster.shadow="on"`}},
		{"replicas", 0, 16, []int{1, 0, 2}, []string{"parallel.data=3"}},
		{"too long", time.Millisecond, 5, []int{1}, []string{"pipeline.stages=3", `cluster.shadow="on"`}},
	} {
		if c.name == "replicas" && !long {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			g := newGroup(t, &group{boss: settings{HandOver: c.handOver}})
			g.join(t, workers(6)...)
			sets := append([]string{fmt.Sprintf("run.steps=%d", c.steps), "run.checkpoint_every=0", "run.eval_every=0", "batch.sequences=192",
				"cluster.max_restarts=0", "cluster.rebalance=false"}, c.source...) // steps that take some time
			want, out := filepath.Join(t.TempDir(), "want"), filepath.Join(t.TempDir(), "out")
			trainHere(t, command{Config: smallRun, Sets: keys(t, want, sets)})
			begin := g.line.place()
			g.ask(t, command{Do: "run", Config: smallRun, Sets: keys(t, out, sets), Workers: 6, Seconds: patience.Seconds()})
			abandoned := 0
			place := begin
			for _, rank := range c.drained {
				name := withRanks(t, g, rank)
				g.await(t, "the next attempt's step", place, patience, kindOf("step"))
				place = g.line.place()
				step := g.await(t, "a step", place, patience, kindOf("step")).Step
				g.ask(t, command{Do: "drain", Worker: name})
				e := g.await(t, "a replacement", place, patience, func(e event) bool {
					return e.Kind == "replace" || e.Kind == "restart" || e.Kind == "regroup" || ended(e)
				})
				if e.Kind != "replace" || !strings.Contains(e.Text, name) || !strings.Contains(e.Text, "leaves") || e.Attrs["kept"] != "0" {
					t.Fatalf("after the drain of %s: %v %v\n%s", name, e, e.Attrs, g.describe())
				}
				if e.Step <= step {
					abandoned++
				}
				place = g.line.place()
			}
			if end := g.await(t, "the run to end", begin, 3*patience, ended); end.Error != "" {
				t.Fatalf("the run: %s\n%s", end.Error, g.describe())
			}
			if c.handOver == 0 && abandoned > 0 || c.handOver > 0 && abandoned == 0 {
				t.Errorf("%d of %d steps in progress were abandoned\n%s", abandoned, len(c.drained), g.describe())
			}
			sameRun(t, want, out, c.steps)
			marks, kinds := marksOf(t, out)
			if kinds[telemetry.MarkReplace] != len(c.drained) || kinds[telemetry.MarkRestart]+kinds[telemetry.MarkResume] > 0 {
				t.Errorf("the marks are %v", marks)
			}
		})
	}
}
