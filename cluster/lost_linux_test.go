package cluster_test

import (
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestLostInSetup: a worker that is lost while a restart is prepared is handled like any other lost worker. An idle worker is
// frozen; when another one dies, it gets the ranks but does not answer.
func TestLostInSetup(t *testing.T) {
	beside(t)
	sets := []string{"run.steps=60", "run.checkpoint_every=10", "run.eval_every=0", "run.keep=1", "pipeline.stages=2"}
	want, out := filepath.Join(t.TempDir(), "want"), filepath.Join(t.TempDir(), "out")
	trainHere(t, command{Config: smallRun, Sets: keys(t, want, sets)})
	g := newGroup(t, &group{boss: settings{Silence: 5 * time.Second}})
	g.join(t, workers(3)...)
	// Two of the three: those whose names come first.
	g.ask(t, command{Do: "run", Config: smallRun, Sets: keys(t, out, sets), Workers: 2, Seconds: patience.Seconds()})
	g.await(t, "step 5", 0, patience, func(e event) bool { return e.Kind == "step" && e.Step >= 5 })
	place := g.line.place() // what is said of them may come before either is known to be down
	stopped := g.workers["worker-2"].cmd.Process
	if err := stopped.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer stopped.Signal(syscall.SIGCONT) //nolint:errcheck // it may have ended
	if err := g.workers["worker-1"].kill(); err != nil {
		t.Fatal(err)
	}
	end := g.await(t, "the run to end", place, 3*patience, ended)
	if end.Error != "" {
		t.Fatalf("the run: %s\n%s", end.Error, g.describe())
	}
	for _, name := range workers(3)[1:] {
		g.await(t, name+" to be gone", place, patience, gone(name))
	}
	sameRun(t, want, out, 60)
	place = g.line.place()
	if err := stopped.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	g.await(t, "the stopped worker to join again", place, patience, joined("worker-2"))
}

// TestJoinsAgain: workers that were removed while frozen join again at their addresses, as other incarnations, and compute.
// The run that lost them continues, and another run on both of them has the same bits.
func TestJoinsAgain(t *testing.T) {
	beside(t)
	sets := []string{"run.steps=40", "run.checkpoint_every=10", "run.eval_every=0", "run.keep=1", "pipeline.stages=2"}
	dir := t.TempDir()
	want, first, second := filepath.Join(dir, "want"), filepath.Join(dir, "first"), filepath.Join(dir, "second")
	trainHere(t, command{Config: smallRun, Sets: keys(t, want, sets)})
	g := newGroup(t, &group{boss: settings{Silence: 5 * time.Second}})
	names := workers(2)
	g.join(t, names...)
	addresses := make(map[string]string)
	for _, name := range names {
		addresses[name] = g.await(t, name, 0, 0, joined(name)).Attrs["address"]
	}
	g.ask(t, command{Do: "run", Config: smallRun, Sets: keys(t, first, sets), Workers: 2, Seconds: patience.Seconds()})
	g.await(t, "step 15", 0, patience, func(e event) bool { return e.Kind == "step" && e.Step >= 15 })
	place := g.line.place()
	for _, name := range names {
		stopped := g.workers[name].cmd.Process
		if err := stopped.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		defer stopped.Signal(syscall.SIGCONT) //nolint:errcheck // it may have ended
	}
	for _, name := range names {
		g.await(t, name+" to be gone", place, patience, gone(name))
	}
	place = g.line.place()
	for _, name := range names {
		if err := g.workers[name].cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range names {
		if again := g.await(t, name+" to join again", place, patience, joined(name)); again.Attrs["address"] != addresses[name] {
			t.Errorf("%s joined at %s, and again at %s", name, addresses[name], again.Attrs["address"])
		}
	}
	if end := g.await(t, "the run to end", 0, patience, ended); end.Error != "" {
		t.Fatalf("the run: %s\n%s", end.Error, g.describe())
	}
	sameRun(t, want, first, 40)
	if busy := g.train(t, command{Config: smallRun, Sets: keys(t, second, sets), Workers: 2}); busy != 2 {
		t.Errorf("%d workers have ranks, want 2", busy)
	}
	sameRun(t, want, second, 40)
}
