package cluster_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/troupe-ml/troupe"
)

// drained is a run of three stages with shadows, and one or more free workers, of which some workers are drained in the middle of a step.
type drained struct {
	*group
	out   string
	place int      // in what it tells, when its first step began
	at    []string // by rank: the worker
	free  string   // the first one
	spare []string // the others
}

// drainable begins such a run. bound is the time that the step in progress may take after a drain; 0: no limit.
func drainable(t *testing.T, bound time.Duration, sets ...string) *drained {
	return drainableWith(t, 1, bound, sets...)
}

// drainableWith is drainable with a number of free workers.
func drainableWith(t *testing.T, free int, bound time.Duration, sets ...string) *drained {
	g := newGroup(t, &group{boss: settings{HandOver: bound, Silence: 2 * time.Second}})
	names := workers(3 + free)
	g.join(t, names...)
	d := &drained{group: g, out: filepath.Join(t.TempDir(), "out")}
	all := append([]string{"run.steps=2", "run.checkpoint_every=0", "run.eval_every=0", "batch.sequences=1000", "cluster.max_restarts=1",
		"cluster.rebalance=false", "pipeline.stages=3", `cluster.shadow="on"`}, sets...)
	g.ask(t, command{Do: "run", Config: smallRun, Sets: keys(t, d.out, all), Workers: len(names), Seconds: patience.Seconds()})
	g.await(t, "the validation before the first step", 0, patience, kindOf("step"))
	d.place = g.line.place()
	for rank := range 3 {
		d.at = append(d.at, withRanks(t, g, rank))
	}
	names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(d.at, name) })
	d.free, d.spare = names[0], names[1:]
	return d
}

func (d *drained) drain(t *testing.T, rank int) {
	t.Helper()
	d.ask(t, command{Do: "drain", Worker: d.at[rank]})
}

func (d *drained) kill(t *testing.T, name string) {
	t.Helper()
	if err := d.workers[name].kill(); err != nil {
		t.Fatal(err)
	}
}

// follows awaits that the attempt ends, as kind says, with a text.
func (d *drained) follows(t *testing.T, kind, text string) event {
	t.Helper()
	e := d.await(t, "the attempt to end", d.place, patience, func(e event) bool {
		return e.Kind == "regroup" || e.Kind == "restart" || e.Kind == "replace" || ended(e)
	})
	if e.Kind != kind || !strings.Contains(e.Text, text) {
		t.Fatalf("%v %v, want %s with %q\n%s", e, e.Attrs, kind, text, d.describe())
	}
	return e
}

// ends awaits the end of the run. No step is made twice.
func (d *drained) ends(t *testing.T) {
	t.Helper()
	if end := d.await(t, "the run to end", d.place, patience, ended); end.Error != "" {
		t.Fatalf("the run: %s\n%s", end.Error, d.describe())
	}
	events, _ := d.line.from(0)
	last := 0
	for _, e := range events {
		if e.Kind == "restart" || e.Kind == "step" && e.Step > 0 && e.Step != last+1 {
			t.Errorf("%v follows step %d", e, last)
		}
		if e.Kind == "step" {
			last = e.Step
		}
	}
}

// TestDrainThenLoss: the attempt loses another worker while a drain waits for the end of the step. The time of the drain ends while the run
// looks for a worker in the place of the lost one: the drained worker keeps its state until then, with the shadow of the lost rank.
func TestDrainThenLoss(t *testing.T) {
	d := drainable(t, time.Second)
	d.drain(t, 2)
	d.kill(t, d.free)
	d.await(t, "the loss of the free worker", d.place, patience, gone(d.free))
	d.kill(t, d.at[1])
	d.follows(t, "replace", d.at[1])
	d.ends(t)
}

// TestDrainTwo: the free worker is for one of two that are drained. The run writes a checkpoint for both at the end of the step, even if
// the time of the first one is over before.
func TestDrainTwo(t *testing.T) {
	d := drainable(t, 700*time.Millisecond)
	d.drain(t, 2)
	d.drain(t, 1)
	e := d.follows(t, "regroup", d.at[1])
	if !strings.Contains(e.Text, d.at[2]) || e.Step != 1 {
		t.Errorf("%v, want %s in it, too, and step 1", e, d.at[2])
	}
	d.ends(t)
}

// TestDrainNoneLeft: the free worker that was to get a drained one's ranks leaves before the step has ended. The run writes a checkpoint.
func TestDrainNoneLeft(t *testing.T) {
	d := drainable(t, 0)
	d.drain(t, 2)
	d.kill(t, d.free)
	if e := d.follows(t, "regroup", d.at[2]); e.Step != 1 {
		t.Errorf("%v, want step 1", e)
	}
	d.ends(t)
}

// TestDrainPreparing: while a free worker, which is frozen, prepares for the ranks of a drained one, one of the two fails. If it is the
// drained one, the free worker gets its ranks, and the step is computed again. If it is the free one, another one gets them after the step.
func TestDrainPreparing(t *testing.T) {
	t.Run("drained", func(t *testing.T) {
		d := drainable(t, 0)
		d.signal(t, d.free, syscall.SIGSTOP)
		d.drain(t, 1)
		d.kill(t, d.at[1])
		d.await(t, "the loss of the drained worker", d.place, patience, gone(d.at[1]))
		d.signal(t, d.free, syscall.SIGCONT)
		if e := d.follows(t, "replace", d.at[1]); e.Step != 0 {
			t.Errorf("%v, want step 0", e)
		}
		if name := withRanks(t, d.group, 1); name != d.free {
			t.Errorf("rank 1 is in %s, want it in %s", name, d.free)
		}
		d.ends(t)
	})
	t.Run("free", func(t *testing.T) {
		d := drainableWith(t, 2, 0)
		d.signal(t, d.free, syscall.SIGSTOP)
		d.drain(t, 1)
		d.kill(t, d.free)
		d.await(t, "the loss of the free worker", d.place, patience, gone(d.free))
		if e := d.follows(t, "replace", d.at[1]); e.Step != 1 {
			t.Errorf("%v, want step 1", e)
		}
		if name := withRanks(t, d.group, 1); name != d.spare[0] {
			t.Errorf("rank 1 is in %s, want it in %s", name, d.spare[0])
		}
		d.ends(t)
	})
}

// signal sends a signal to a worker.
func (d *drained) signal(t *testing.T, name string, what syscall.Signal) {
	t.Helper()
	if err := d.workers[name].cmd.Process.Signal(what); err != nil {
		t.Fatal(err)
	}
}

// TestDrainPaused: a paused run replaces a drained worker at once, and stays paused.
func TestDrainPaused(t *testing.T) {
	d := drainable(t, 0, "batch.sequences=48", "run.steps=60")
	d.ask(t, command{Do: "change", Change: troupe.Change{Kind: troupe.ChangePause}})
	paused := d.await(t, "the pause", d.place, patience, kindOf("pause")).Step
	d.drain(t, 1)
	if e := d.follows(t, "replace", d.at[1]); e.Step != paused {
		t.Errorf("%v, want step %d", e, paused)
	}
	if name := withRanks(t, d.group, 1); name != d.free {
		t.Errorf("rank 1 is in %s, want it in %s", name, d.free)
	}
	d.place = d.line.place()
	d.ask(t, command{Do: "change", Change: troupe.Change{Kind: troupe.ChangeResume}})
	if e := d.await(t, "the run to resume", d.place, patience, kindOf("resume")); e.Step != paused {
		t.Errorf("it resumes at step %d, want %d", e.Step, paused)
	}
	d.ends(t)
}

// TestDrainThenHolder: while a free worker, which is frozen, loads the ranks of a drained one, the worker fails that has their shadow. The
// drained one still has their state: no step is lost.
func TestDrainThenHolder(t *testing.T) {
	if !long && os.Getenv("TROUPE_FAULTS") == "" { // TestSources and TestLeave have it without processes
		t.Skip("takes 6 s: run it with TROUPE_FAULTS=1 (make check-faults)")
	}
	d := drainable(t, time.Second, "run.steps=3")
	d.signal(t, d.free, syscall.SIGSTOP)
	d.drain(t, 1)
	d.await(t, "the loss of the free worker", d.place, patience, gone(d.free))
	d.kill(t, d.at[2])
	d.kill(t, d.free)
	e := d.follows(t, "replace", d.at[1])
	d.place = d.line.place()
	if e.Attrs["kept"] != "0" {
		t.Errorf("%v: ranks that were kept read their state", e.Attrs)
	}
	d.follows(t, "regroup", d.at[1]) // it has its rank again, and leaves with a checkpoint, since no worker is free
	d.ends(t)
}
