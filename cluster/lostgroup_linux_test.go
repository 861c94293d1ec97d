package cluster_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/telemetry"
)

// TestLostInGroup: a worker that dies, leaves or freezes while other members of its groups wait for it in collectives is
// handled like any other lost worker. The run continues without help, and has the same bits as an undisturbed one of the
// same grid.
func TestLostInGroup(t *testing.T) {
	g := newGroup(t, &group{boss: settings{Silence: 2 * time.Second}})
	g.join(t, workers(4)...)
	for i, c := range []struct {
		name string
		sets []string
	}{
		{"tp2 pp2 dp2", []string{"parallel.tensor=2", "parallel.data=2", "pipeline.stages=2"}},
		{"dp4, ahead", []string{"parallel.data=4", "pipeline.schedule=zb-h2", "pipeline.post_validation=true"}},
	} {
		if i > 0 && !long {
			break
		}
		t.Run(c.name, func(t *testing.T) {
			sets := append([]string{"run.steps=60", "run.checkpoint_every=10", "run.eval_every=0", "run.keep=1", "cluster.max_restarts=20"},
				c.sets...)
			want, out := filepath.Join(t.TempDir(), "want"), filepath.Join(t.TempDir(), "out")
			trainHere(t, command{Config: smallRun, Sets: keys(t, want, sets)})
			begin := g.line.place()
			g.ask(t, command{Do: "run", Config: smallRun, Sets: keys(t, out, sets), Workers: 4, Seconds: patience.Seconds()})
			restarted := func(place int) {
				t.Helper()
				e := g.await(t, "a restart or a replacement", place, patience, func(e event) bool {
					return e.Kind == "restart" || e.Kind == "replace" || ended(e)
				})
				if !strings.Contains(e.Text, " failed") { // on a busy machine perhaps another
					t.Fatalf("it goes on after %q, want the loss of a worker\n%s", e.Text+e.Error, g.describe())
				}
			}
			steps := func(step int) int {
				g.await(t, fmt.Sprintf("step %d", step), begin, patience, func(e event) bool { return e.Kind == "step" && e.Step >= step })
				return g.line.place()
			}
			place := steps(5)
			if err := g.workers["worker-2"].kill(); err != nil {
				t.Fatal(err)
			}
			restarted(place)
			begin = g.line.place()
			place = steps(11)
			g.ask(t, command{Do: "change", Change: troupe.Change{Kind: troupe.ChangePause}})
			if err := g.workers["worker-3"].in.Close(); err != nil { // it leaves in order, with a checkpoint
				t.Fatal(err)
			}
			g.await(t, "a regroup", place, patience, kindOf("regroup"))
			g.ask(t, command{Do: "change", Change: troupe.Change{Kind: troupe.ChangeResume}})
			begin = g.line.place()
			place = steps(25)
			stopped := g.workers["worker-1"].cmd.Process
			if err := stopped.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			defer stopped.Signal(syscall.SIGCONT) //nolint:errcheck // it may have ended
			restarted(place)
			if end := g.await(t, "the run to end", place, 3*patience, ended); end.Error != "" {
				t.Fatalf("the run: %s\n%s", end.Error, g.describe())
			}
			sameRun(t, want, out, 60)
			marks, kinds := marksOf(t, out)
			if n := kinds[telemetry.MarkRestart]; n+kinds[telemetry.MarkReplace] < 2 || kinds[telemetry.MarkRegroup] != 1 ||
				kinds[telemetry.MarkResume]+kinds[telemetry.MarkStart] != n+2 || kinds[telemetry.MarkEnd] != 1 {
				t.Errorf("the marks are %v", marks)
			}
			place = g.line.place()
			if err := stopped.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			g.await(t, "worker-1 to join again", place, patience, joined("worker-1"))
			g.join(t, "worker-2", "worker-3")
		})
	}
}
