package cluster_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/troupe-ml/troupe/internal/testing/netlab"
)

// The hosts of the test network.
const (
	bossHost = "coordinator"
	port     = "7070"
)

// netRun is a run that is long enough for a disturbance.
var netRun = []string{"run.checkpoint_every=10", "run.eval_every=50", "run.keep=2",
	"model.hidden=64", "model.context=64", "batch.sequences=32", "batch.microbatch=4"}

// network is a cluster in a test network.
type network struct {
	*group
	lab   *netlab.Lab
	steps int
	out   string
	want  string
	run   command
	begun event
	began time.Time
	cut   time.Time // when the disturbance began
	place int       // in the timeline, then
	step  int       // of the run, then
}

// newNetwork makes a test network with a coordinator and workers, with the default silence and lease.
func newNetwork(t *testing.T, n, steps int, sets ...string) *network {
	t.Helper()
	hosts := append([]string{bossHost}, workers(n)...)
	lab := netlab.New(t, hosts...)
	want := filepath.Join(t.TempDir(), "want")
	sets = slices.Concat(netRun, []string{fmt.Sprintf("run.steps=%d", steps)}, sets)
	trainHere(t, command{Config: smallRun, Sets: keys(t, want, sets)})
	g := newGroup(t, &group{
		program: func(ctx context.Context, host string) *exec.Cmd { return lab.Command(ctx, host, os.Args[0]) },
		boss:    settings{Listen: lab.Address(bossHost) + ":" + port, Silence: 3 * time.Second, Lease: 30 * time.Second},
	})
	g.join(t, workers(n)...)
	out := filepath.Join(t.TempDir(), "out")
	return &network{group: g, lab: lab, steps: steps, out: out, want: want,
		run: command{Do: "run", Config: smallRun, Sets: keys(t, out, sets), Workers: n, Seconds: patience.Seconds()}}
}

// begin begins the run and waits until it has completed a step.
func (n *network) begin(t *testing.T, step int) {
	t.Helper()
	n.began = time.Now()
	n.begun = n.ask(t, n.run)
	if n.begun.Count != n.run.Workers {
		t.Errorf("%d workers have ranks, want %d", n.begun.Count, n.run.Workers)
	}
	if step > 0 {
		n.await(t, fmt.Sprintf("step %d", step), 0, patience, func(e event) bool { return e.Kind == "step" && e.Step >= step })
	}
	events, _ := n.line.from(0)
	n.cut, n.place, n.step = time.Now(), len(events), lastStep(events)
}

// report has the cost of a disturbance.
type report struct {
	noticed  time.Duration // until the coordinator's word; 0: never
	restarts int
}

// finish waits for the run's end, checks that the result is that of the undisturbed run, and prints the disturbance's cost.
func (n *network) finish(t *testing.T) (r report) {
	t.Helper()
	end := n.await(t, "the run to end", 0, 5*patience, ended)
	if end.Error != "" {
		t.Fatalf("the run: %s\n%s", end.Error, n.describe())
	}
	events, _ := n.line.from(n.place)
	f := fault{at: n.cut, place: 0, step: n.step}
	for _, e := range events {
		if e.Kind == "restart" {
			r.restarts++
		}
		if e.Kind == "log" && e.Text == "worker left" && r.noticed == 0 {
			r.noticed = e.At.Sub(n.cut)
		}
	}
	noticed := "never"
	if r.noticed > 0 {
		noticed = fmt.Sprintf("after %.2f s", r.noticed.Seconds())
	}
	t.Logf("%d steps in %.1f s; a worker's loss was noticed %s; %s s until the run was where it was; %d restarts",
		n.steps, end.At.Sub(n.began).Seconds(), noticed, lost(f, events, len(events)), r.restarts)
	for _, e := range events {
		if e.Kind == "restart" {
			t.Log(e)
		}
	}
	sameRun(t, n.want, n.out, n.steps)
	t.Log("losses, gradient norms, weights and the optimizer's state are equal to the bit")
	return r
}

// during waits until the disturbance ends.
func during(d time.Duration) { time.Sleep(d) }

// TestNetSlow: delay, packet loss and a limited rate don't interrupt a run.
func TestNetSlow(t *testing.T) {
	n := newNetwork(t, 3, 60, "pipeline.stages=3")
	n.lab.SetLinks(netlab.Link{Delay: time.Millisecond, LossPercent: 1, BitsPerSecond: 100e6})
	n.begin(t, 0)
	if r := n.finish(t); r.restarts != 0 || r.noticed != 0 {
		t.Errorf("%+v: want a run that goes on", r)
	}
	for _, host := range n.lab.Hosts() {
		t.Logf("%s: %+v", host, n.lab.Counts(host))
	}
}

// TestNetShadows: with cluster.shadow = "auto" ranks have shadows over a fast link and none over a slow one, which a run measures first.
func TestNetShadows(t *testing.T) {
	for _, c := range []struct {
		name string
		link netlab.Link
		none bool
	}{{name: "fast"}, {name: "slow", link: netlab.Link{BitsPerSecond: 100e6}, none: true}} {
		t.Run(c.name, func(t *testing.T) {
			n := newNetwork(t, 2, 2, "pipeline.stages=2", "batch.sequences=1024", "batch.microbatch=32")
			n.lab.SetLinks(c.link)
			n.begin(t, 0)
			n.finish(t)
			events, _ := n.line.from(0)
			none := slices.ContainsFunc(events, func(e event) bool { return e.Kind == "log" && e.Text == "the ranks have no shadows" })
			if none != c.none {
				t.Errorf("the log says that the ranks have no shadows: %v, want %v\n%s", none, c.none, n.describe())
			}
		})
	}
}

// TestNetShortPartition: a worker that can't be reached for 2 s is not lost.
func TestNetShortPartition(t *testing.T) {
	n := newNetwork(t, 3, 60, "pipeline.stages=3")
	n.begin(t, 20)
	n.lab.Partition([]string{"worker-1"})
	during(2 * time.Second)
	place, healed := n.line.place(), time.Now()
	n.lab.Heal()
	next := n.await(t, "the next step", place, patience, func(e event) bool { return e.Kind == "step" || ended(e) })
	t.Logf("the next step came %.2f s after the partition's end", next.At.Sub(healed).Seconds())
	if r := n.finish(t); r.restarts != 0 || r.noticed != 0 {
		t.Errorf("%+v: want a run that goes on", r)
	}
}

// wasNoticed checks that a loss was detected. finish prints when: on a quiet machine within the silence plus a second.
func (r report) wasNoticed(t *testing.T) {
	t.Helper()
	if r.noticed == 0 {
		t.Error("the loss was not noticed")
	}
}

// TestNetLongPartition: a worker that can't be reached for 30 s is lost. The run continues with the others, and the worker
// joins again without help.
func TestNetLongPartition(t *testing.T) {
	n := newNetwork(t, 3, 60, "pipeline.stages=3")
	n.begin(t, 20)
	n.lab.Partition([]string{"worker-1"})
	during(30 * time.Second)
	healed := n.line.place()
	n.lab.Heal()
	back := n.await(t, "worker-1 to join again", healed, patience, joined("worker-1"))
	t.Logf("worker-1 joined again %.1f s after the partition's end", back.At.Sub(n.cut.Add(30*time.Second)).Seconds())
	r := n.finish(t)
	r.wasNoticed(t)
	if r.restarts != 1 {
		t.Errorf("%d restarts, want 1", r.restarts)
	}
}

// TestNetOnlyWorker: if the only worker can't be reached for 30 s, the run waits for it.
func TestNetOnlyWorker(t *testing.T) {
	n := newNetwork(t, 1, 60, "pipeline.stages=2")
	n.begin(t, 20)
	n.lab.Partition([]string{"worker-0"})
	during(30 * time.Second)
	n.lab.Heal()
	r := n.finish(t)
	r.wasNoticed(t)
	if r.restarts != 1 {
		t.Errorf("%d restarts, want 1", r.restarts)
	}
}

// TestNetBetweenWorkers: two workers can't reach each other, but both reach the coordinator. The run waits for 2 s. After a
// longer time it continues without one of them, even if they never reach each other again.
func TestNetBetweenWorkers(t *testing.T) {
	for _, tt := range []struct {
		name     string
		length   time.Duration // 0: to the end of the run
		restarts int
	}{{"2 s", 2 * time.Second, 0}, {"20 s", 20 * time.Second, 1}, {"for ever", 0, 1}} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNetwork(t, 3, 60, "pipeline.stages=3")
			n.begin(t, 20)
			n.lab.Cut("worker-0", "worker-1")
			n.lab.Cut("worker-1", "worker-0")
			if tt.length > 0 {
				during(tt.length)
				n.lab.Heal()
			}
			if r := n.finish(t); r.restarts != tt.restarts {
				t.Errorf("%d restarts, want %d", r.restarts, tt.restarts)
			}
			if tt.restarts == 0 {
				return
			}
			restart := n.await(t, "the restart", n.place, 0, func(e event) bool { return e.Kind == "restart" })
			n.saidWhy(t, restart)
		})
	}
}

// TestNetNeverBetweenWorkers is the same for two workers that can't reach each other from the start.
func TestNetNeverBetweenWorkers(t *testing.T) {
	n := newNetwork(t, 3, 20, "pipeline.stages=3")
	n.lab.Cut("worker-0", "worker-1")
	n.lab.Cut("worker-1", "worker-0")
	n.begin(t, 0)
	if r := n.finish(t); r.restarts != 1 {
		t.Errorf("%d restarts, want 1", r.restarts)
	}
	n.saidWhy(t, n.await(t, "the restart", n.place, 0, func(e event) bool { return e.Kind == "restart" }))
}

// saidWhy checks that the run reported that two workers can't reach each other, and what waits for what, before it dropped one.
func (n *network) saidWhy(t *testing.T, restart event) {
	t.Helper()
	events, _ := n.line.from(n.place)
	var warned, stall event
	for _, e := range events[:slices.IndexFunc(events, func(e event) bool { return e.Kind == "restart" })] {
		switch {
		case e.Kind == "warning" && strings.Contains(e.Text, "has not reached worker-") && warned.Kind == "":
			warned = e
		case e.Kind == "stall" && stall.Kind == "":
			stall = e
		}
	}
	link := strings.Contains(stall.Text, "root: worker-0 does not reach worker-1: ") ||
		strings.Contains(stall.Text, "root: worker-1 does not reach worker-0: ")
	if warned.Kind == "" || !strings.Contains(stall.Text, "waits for") || !strings.Contains(stall.Text, "on worker-") || !link {
		t.Errorf("before one of them was given up (%v) the run said %q, and %q of what it waits for", restart, warned.Text, stall.Text)
		return
	}
	// By construction the first comes at most silence + a beat + a round trip behind the first
	// message that waits, the second at three times the silence.
	t.Logf("%.2f s behind the cut it said: %s; given up %.2f s behind it; waits:\n%s", stall.At.Sub(n.cut).Seconds(), warned.Text,
		restart.At.Sub(n.cut).Seconds(), stall.Text)
}

// TestNetOneWay: a worker receives from the coordinator but can't send to it, and the reverse.
func TestNetOneWay(t *testing.T) {
	for _, way := range [][2]string{{"worker-1", bossHost}, {bossHost, "worker-1"}} {
		t.Run("nothing from "+way[0], func(t *testing.T) {
			n := newNetwork(t, 3, 60, "pipeline.stages=3")
			n.begin(t, 20)
			n.lab.Cut(way[0], way[1])
			during(10 * time.Second)
			healed := n.line.place()
			n.lab.Heal()
			n.await(t, "worker-1 to join again", healed, patience, joined("worker-1"))
			r := n.finish(t)
			r.wasNoticed(t)
			if r.restarts != 1 {
				t.Errorf("%d restarts, want 1", r.restarts)
			}
		})
	}
}

// TestNetCoordinatorAlone: a coordinator without a network for 5 s loses all its workers. They join again, and the run
// continues.
func TestNetCoordinatorAlone(t *testing.T) {
	n := newNetwork(t, 3, 60, "pipeline.stages=3")
	n.begin(t, 20)
	n.lab.Partition([]string{bossHost})
	during(5 * time.Second)
	n.lab.Heal()
	r := n.finish(t)
	r.wasNoticed(t)
	if r.restarts == 0 {
		t.Error("no restarts, want 1")
	}
}

// TestNetCoordinatorKilled: a coordinator that is killed and restarted resumes the run with the workers that are there.
func TestNetCoordinatorKilled(t *testing.T) {
	n := newNetwork(t, 3, 60, "pipeline.stages=3")
	n.lab.SetLinks(netlab.Link{Delay: time.Millisecond})
	n.begin(t, 20)
	if err := n.lead.kill(); err != nil {
		t.Fatal(err)
	}
	n.startCoordinator(t)
	n.ask(t, n.run)
	n.finish(t)
}
