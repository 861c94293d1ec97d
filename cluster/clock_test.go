package cluster_test

import (
	"path/filepath"
	"testing"
	"time"
)

// TestNextCoordinatorNumbers: workers obey a restarted coordinator, whatever its clock and its attempt numbers are.
func TestNextCoordinatorNumbers(t *testing.T) {
	g := newGroup(t, new(group))
	g.join(t, "only")
	run := command{Config: smallRun, Workers: 1}
	run.Sets = keys(t, filepath.Join(t.TempDir(), "first"), []string{"pipeline.stages=2"})
	g.train(t, run)

	if err := g.lead.kill(); err != nil {
		t.Fatal(err)
	}
	place := g.line.place()
	g.startCoordinator(t)
	g.await(t, "the worker to join the next coordinator", place, patience, joined("only"))
	g.ask(t, command{Do: "lower generation", Workers: 5 << 30})
	run.Sets = keys(t, filepath.Join(t.TempDir(), "second"), []string{"pipeline.stages=2"})
	g.train(t, run)
}

// TestClocksAreSet: setting the hosts' clocks, even by more than the silence and the lease, does not disturb a run.
func TestClocksAreSet(t *testing.T) {
	g := newGroup(t, &group{boss: settings{Silence: 2 * time.Second, Lease: 3 * time.Second}})
	g.join(t, "a", "b")
	place := g.line.place()
	begun := g.ask(t, command{Do: "run", Config: smallRun, Workers: 2, Seconds: patience.Seconds(),
		Sets: keys(t, filepath.Join(t.TempDir(), "out"), []string{"pipeline.stages=2", "run.steps=100000", "cluster.silence_s=2",
			"cluster.lease_s=3"})})
	step := func(n int) func(event) bool {
		return func(e event) bool { return e.Kind == "step" && e.Step >= n }
	}
	last := g.await(t, "a step", place, patience, step(1)).Step
	for _, by := range []float64{240, -480, 240} { // within what certificates allow
		place := g.line.place()
		g.setClocks(t, by)
		time.Sleep(1200 * time.Millisecond) // workers look at their lease each second
		last = g.await(t, "steps after the clocks were set", place, patience, step(last+1)).Step
	}
	if err := g.lead.in.Close(); err != nil { // which stops the run
		t.Fatal(err)
	}
	g.await(t, "the run's end", place, patience, func(e event) bool { return e.Kind == "end" && e.ID == begun.ID })
	events, _ := g.line.from(0)
	for _, e := range events {
		if e.Kind == "restart" || e.Kind == "stall" || e.Kind == "warning" || e.Kind == "log" && e.Text == "worker left" &&
			e.Attrs["why"] != "it left the cluster" {
			t.Errorf("the run noticed: %v", e)
		}
	}
}
