package cluster_test

import (
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestLostInSetup: a worker that is lost while a restart is set up is lost like any other. An idle
// one is stopped, so that it is given ranks when another dies, and says nothing.
func TestLostInSetup(t *testing.T) {
	if raceDetector {
		// A worker that joins again starts protoactor's remote again in its process, which sets
		// gRPC's logger for all while the last goroutines of the one before may read it.
		t.Skip("protoactor's remote sets a global logger whenever it starts, which is a data race where one was there before")
	}
	sets := []string{"run.steps=60", "run.checkpoint_every=10", "run.eval_every=0", "run.keep=1", "pipeline.stages=2"}
	want, out := filepath.Join(t.TempDir(), "want"), filepath.Join(t.TempDir(), "out")
	trainHere(t, command{Config: smallRun, Sets: keys(t, want, sets)})
	g := newGroup(t, &group{boss: settings{Silence: 2 * time.Second}})
	g.join(t, workers(3)...)
	// Two of the three: those whose names come first.
	g.ask(t, command{Do: "run", Config: smallRun, Sets: keys(t, out, sets), Workers: 2, Seconds: patience.Seconds()})
	g.await(t, "step 5", 0, patience, func(e event) bool { return e.Kind == "step" && e.Step >= 5 })
	stopped := g.workers["worker-2"].cmd.Process
	if err := stopped.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer stopped.Signal(syscall.SIGCONT) //nolint:errcheck // it may have ended
	if err := g.workers["worker-1"].kill(); err != nil {
		t.Fatal(err)
	}
	place := g.line.place()
	end := g.await(t, "the run to end", place, patience, ended)
	if end.Error != "" {
		t.Fatalf("the run: %s\n%s", end.Error, g.describe())
	}
	for _, name := range workers(3)[1:] {
		g.await(t, name+" to be gone", place, 0, gone(name))
	}
	sameRun(t, want, out, 60)
	if err := stopped.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	g.await(t, "the stopped worker to join again", place, patience, joined("worker-2"))
}
