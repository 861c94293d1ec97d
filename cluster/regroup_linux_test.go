package cluster_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/troupe-ml/troupe"
)

// interrupt tells a worker to stop.
func (g *group) interrupt(t *testing.T, name string) {
	t.Helper()
	g.mu.Lock()
	p := g.workers[name]
	g.mu.Unlock()
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
}

func says(text string) func(event) bool {
	return func(e event) bool { return e.Kind == "log" && strings.Contains(e.Text, text) }
}

// TestRegroup: a worker that is told to stop leaves after a checkpoint, and a worker that joins is used from the next
// checkpoint on. No step is repeated, and the bits are those of an undisturbed run.
func TestRegroup(t *testing.T) {
	beside(t)
	const steps = 30
	sets := []string{"run.steps=30", "run.checkpoint_every=0", "run.eval_every=0", "pipeline.stages=3"}
	want := filepath.Join(t.TempDir(), "want")
	trainHere(t, command{Config: smallRun, Sets: keys(t, want, sets)})

	g := newGroup(t, &group{boss: settings{Silence: 5 * time.Second, Steady: time.Millisecond}})
	g.join(t, workers(3)...)
	out := filepath.Join(t.TempDir(), "out")
	g.ask(t, command{Do: "run", Config: smallRun, Sets: keys(t, out, sets), Workers: 3, Seconds: patience.Seconds(),
		Requests: []troupe.Change{{Kind: troupe.ChangePause, Step: 10}}})
	change := func(ch troupe.Change) { t.Helper(); g.ask(t, command{Do: "change", Change: ch}) }
	busy := func(want int) {
		t.Helper()
		text := g.ask(t, command{Do: "status"}).Text
		if n := len(regexp.MustCompile(`worker \S+ at .* ranks \[\d`).FindAllString(text, -1)); n != want {
			t.Errorf("%d workers have ranks, want %d:\n%s", n, want, text)
		}
	}
	paused := func(step int) func(event) bool {
		return func(e event) bool { return e.Kind == "pause" && e.Step == step }
	}

	g.await(t, "the pause", 0, patience, paused(10))
	place := g.line.place()
	g.interrupt(t, "worker-1") // two at once
	g.interrupt(t, "worker-2")
	if e := g.await(t, "the regroup", place, patience, kindOf("regroup")); e.Step != 10 || e.Text != "leaving [worker-1 worker-2], free []" {
		t.Errorf("the first regroup is %v", e)
	}
	if e := g.await(t, "the log", place, patience, says("worker was told to stop")); e.Attrs["grace_s"] != "25" {
		t.Errorf("it has a grace time of %s s, want 25", e.Attrs["grace_s"])
	}
	g.await(t, "the next attempt's pause", place, patience, paused(10))
	for _, name := range []string{"worker-1", "worker-2"} {
		g.await(t, "the worker to leave", place, patience, gone(name))
		<-g.workers[name].ended
		if text := g.workers[name].err.String(); !strings.Contains(text, name+" leaves: checkpoint step 10 written, no step lost") {
			t.Errorf("the worker's log:\n%s", text)
		}
	}
	busy(1)

	place = g.line.place()
	g.join(t, "worker-2")
	g.await(t, "the coordinator to see that the worker is free", place, patience, says("free workers make the run faster"))
	change(troupe.Change{Kind: troupe.ChangeCheckpoint, Step: 15})
	change(troupe.Change{Kind: troupe.ChangeResume})
	if e := g.await(t, "the regroup", place, patience, kindOf("regroup")); e.Step != 15 || e.Text != "leaving [], free [worker-2]" {
		t.Errorf("the second regroup is %v", e)
	}
	if end := g.await(t, "the end", place, patience, ended); end.Error != "" {
		t.Fatalf("%v\n%s", end, g.describe())
	}
	events, _ := g.line.from(0)
	last, regroups := 0, 0
	for _, e := range events {
		switch e.Kind {
		case "restart":
			t.Errorf("a restart: %v", e)
		case "regroup":
			regroups++
		case "step":
			if e.Step != last+1 && e.Step > 0 {
				t.Errorf("step %d follows step %d", e.Step, last)
			}
			last = e.Step
		}
	}
	if regroups != 2 {
		t.Errorf("the run regrouped %d times, want 2", regroups)
	}
	sameRun(t, want, out, steps)
}
