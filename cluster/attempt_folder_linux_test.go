package cluster_test

import (
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestStoppedWhileItWrites: a worker that gets SIGSTOP while it writes its part of a checkpoint is lost. The next attempt
// writes the checkpoint, and it does not change when the first worker continues to write to its open file.
func TestStoppedWhileItWrites(t *testing.T) {
	if raceDetector {
		t.Skip("protoactor's remote sets a global logger whenever it starts, which is a data race where one was there before")
	}
	beside(t)
	sets := []string{"pipeline.stages=2"}
	want, out := filepath.Join(t.TempDir(), "want"), filepath.Join(t.TempDir(), "out")
	trainHere(t, command{Config: smallRun, Sets: keys(t, want, sets)})
	g, release := slowGroup(t, settings{Silence: 5 * time.Second})
	g.join(t, workers(3)...)
	begun := g.ask(t, command{Do: "run", Config: smallRun, Sets: keys(t, out, sets), Workers: 3, Seconds: patience.Seconds()})
	g.await(t, "worker-0 to write", 0, patience, writing)
	zombie := g.workers["worker-0"].cmd.Process
	if err := zombie.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer zombie.Signal(syscall.SIGCONT) //nolint:errcheck // it may have ended
	end := g.await(t, "the run to end", 0, patience, func(e event) bool { return e.Kind == "end" && e.ID == begun.ID })
	if end.Error != "" {
		t.Fatalf("the run: %s\n%s", end.Error, g.describe())
	}
	sameRun(t, want, out, 6)
	intact(t, out)
	place := g.line.place()
	release()
	if err := zombie.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	g.await(t, "worker-0 to have written", place, patience, wrote)
	sameRun(t, want, out, 6)
	sameRun(t, want, out, 4)
	intact(t, out)
	g.await(t, "worker-0 to join again", place, patience, joined("worker-0"))
}
