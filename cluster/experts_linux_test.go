package cluster_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestKilledInAllToAll: a worker that dies while another waits for its tokens in an all-to-all is replaced. The run restarts from its
// last checkpoint without help, and has the bits of an undisturbed one.
func TestKilledInAllToAll(t *testing.T) {
	g := newGroup(t, &group{boss: settings{Silence: 20 * time.Second}})
	g.join(t, workers(2)...)
	sets := slices.Concat(experts, []string{"run.steps=60", "run.checkpoint_every=10", "run.eval_every=0", "run.keep=1",
		"cluster.max_restarts=20", "parallel.data=2"})
	want, out := filepath.Join(t.TempDir(), "want"), filepath.Join(t.TempDir(), "out")
	trainHere(t, command{Config: smallRun, Sets: keys(t, want, sets)})
	begin := g.line.place()
	g.ask(t, command{Do: "run", Config: smallRun, Sets: keys(t, out, sets, []string{"parallel.expert=2", "parallel.expert_overlap=true"}),
		Workers: 2, Seconds: patience.Seconds()})
	const step = 12
	g.await(t, fmt.Sprintf("step %d", step), begin, patience, func(e event) bool { return e.Kind == "step" && e.Step >= step })
	place := g.line.place()
	g.stopInAllToAll(t, "worker-1")
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
	sameRun(t, want, out, 60)
}

// stopInAllToAll stops a worker's process at a point where the other worker waits for it in an exchange of tokens.
func (g *group) stopInAllToAll(t *testing.T, name string) {
	t.Helper()
	process := g.workers[name].cmd.Process
	for range 20 {
		if err := process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2500 * time.Millisecond) // the other worker reports what it does every second
		for line := range strings.Lines(g.ask(t, command{Do: "status"}).Text) {
			if strings.HasPrefix(line, "stage ") && !strings.Contains(line, name) && strings.Contains(line, "all_to_all_v") {
				return
			}
		}
		if err := process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		time.Sleep(7 * time.Millisecond)
	}
	t.Fatalf("the other worker never waits in an all-to-all\n%s", g.describe())
}
