package cluster_test

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/cluster"
)

// asked is a run to which a test makes requests.
type asked struct {
	t    *testing.T
	g    *group
	line *timeline // what the run tells
	// ask makes a change; requests are those that status lists.
	ask      func(ch troupe.Change)
	requests func() string
}

// askCluster submits a run to the coordinator and follows it, as an operator does.
func askCluster(t *testing.T, g *group, sets ...string) *asked {
	t.Helper()
	token, err := cluster.ParseToken(g.ask(t, command{Do: "token", Operator: true, Seconds: 3600}).Text)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var id string
	client, err := cluster.NewClient(ctx, cluster.ClientConfig{Address: g.address, Token: token})
	if err == nil {
		id, err = client.Submit(ctx, cluster.Submission{Config: []byte(smallRun), Sets: keys(t, filepath.Join(t.TempDir(), "out"), sets)})
	}
	var run *cluster.Followed
	if err == nil {
		run, err = client.Follow(ctx, id, cluster.FollowOptions{})
	}
	if err != nil {
		cancel()
		t.Fatalf("%v\n%s", err, g.describe())
	}
	a := &asked{t: t, g: g, line: newTimeline()}
	done := make(chan struct{})
	go func() { // ends with the run, or with ctx
		defer close(done)
		for e := range run.Events() {
			a.line.add(told(e))
		}
		a.line.add(endOf(run.Wait()))
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		client.Close()
	})
	a.ask = func(ch troupe.Change) {
		t.Helper()
		if _, err := client.Change(ctx, id, ch); err != nil {
			t.Fatalf("%v: %v\n%s", ch, err, g.describe())
		}
	}
	a.requests = func() string {
		t.Helper()
		_, status, err := client.Status(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		return status.Requested()
	}
	return a
}

// askLocal begins a run in the coordinator's process, as engine run --local-cluster and a service do.
func askLocal(t *testing.T, g *group, sets ...string) *asked {
	t.Helper()
	g.ask(t, command{Do: "run", Config: smallRun, Sets: keys(t, filepath.Join(t.TempDir(), "out"), sets), Workers: 2,
		Seconds: patience.Seconds()})
	return &asked{t: t, g: g, line: g.line,
		ask:      func(ch troupe.Change) { t.Helper(); g.ask(t, command{Do: "change", Change: ch}) },
		requests: func() string { t.Helper(); return g.ask(t, command{Do: "requests"}).Text },
	}
}

// await waits for an event from a place on.
func (a *asked) await(what string, place int, want func(event) bool) event {
	a.t.Helper()
	e, err := (&group{line: a.line}).find(place, patience, want)
	if err != nil {
		a.t.Fatalf("%s: %v\n%s", what, err, a.g.describe())
	}
	return e
}

func kindOf(kind string) func(event) bool { return func(e event) bool { return e.Kind == kind } }

func stepFrom(n int) func(event) bool {
	return func(e event) bool { return e.Kind == "step" && e.Step >= n }
}

// busy returns the workers that have ranks. It may be one, if the other has not joined again.
func (a *asked) busy() (names []string) {
	a.t.Helper()
	for _, m := range regexp.MustCompile(`worker (\S+) at .* ranks \[\d`).FindAllStringSubmatch(a.g.ask(a.t, command{Do: "status"}).Text, -1) {
		names = append(names, m[1])
	}
	if len(names) == 0 {
		a.t.Fatalf("no worker has ranks\n%s", a.g.describe())
	}
	return names
}

// kill ends a worker.
func (a *asked) kill(name string) {
	a.t.Helper()
	a.g.mu.Lock()
	p := a.g.workers[name]
	a.g.mu.Unlock()
	if err := p.kill(); err != nil {
		a.t.Fatal(err)
	}
}

// TestRequestsSurvive makes a request to a run and then kills one of its workers. The run still does what was requested, and
// the status shows the request until then. With TROUPE_KILLS=1 it does so ten times.
func TestRequestsSurvive(t *testing.T) {
	times := 1
	if os.Getenv("TROUPE_KILLS") == "1" {
		times = 10
	}
	for name, begin := range map[string]func(*testing.T, *group, ...string) *asked{"cluster": askCluster, "local": askLocal} {
		t.Run(name, func(t *testing.T) {
			beside(t)
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			random := rand.New(rand.NewPCG(seed, 3))
			g := newGroup(t, &group{boss: settings{Silence: 5 * time.Second}})
			g.join(t, workers(2)...)
			keep := &keeper{g: g, stop: make(chan struct{})}
			t.Cleanup(func() { close(keep.stop); keep.running.Wait() })
			for _, name := range workers(2) {
				keep.keep(name, func() time.Duration { return 0 })
			}
			for range times {
				a := begin(t, g, "run.steps=100000", "run.checkpoint_every=7", "run.eval_every=0", "run.keep=2", "pipeline.stages=2",
					"cluster.max_restarts=100")
				surviveAll(t, a, random)
			}
		})
	}
}

// surviveAll makes every kind of request to a run.
func surviveAll(t *testing.T, a *asked, random *rand.Rand) {
	soon := func(most time.Duration) { time.Sleep(time.Duration(random.Int64N(int64(most)))) }
	// strike kills a worker around the time of a request.
	strike := func(ch troupe.Change) (place int) {
		t.Helper()
		a.await("a step", a.line.place(), stepFrom(1))
		soon(30 * time.Millisecond)
		place = a.line.place()
		a.ask(ch)
		soon(10 * time.Millisecond)
		busy := a.busy()
		a.kill(busy[random.IntN(len(busy))])
		return place
	}
	place := strike(troupe.Change{Kind: troupe.ChangePause})
	restart := a.await("the restart", place, kindOf("restart"))
	events, _ := a.line.from(0)
	for i, e := range events {
		if e.At.Equal(restart.At) && e.Kind == "restart" {
			place = i
		}
	}
	paused := a.await("the pause of the next attempt", place, kindOf("pause"))
	if text := a.requests(); text != "requested: pause" {
		t.Errorf("paused, the status says %q", text)
	}
	time.Sleep(100 * time.Millisecond)
	events, _ = a.line.from(place)
	for _, e := range events {
		if e.Kind == "step" && e.At.After(paused.At) {
			t.Errorf("the paused run trains: %v", e)
		}
	}
	a.ask(troupe.Change{Kind: troupe.ChangeResume})

	place = strike(troupe.Change{Kind: troupe.ChangeCheckpoint})
	a.await("the restart", place, kindOf("restart"))
	a.await("the checkpoint", place, func(e event) bool { return e.Kind == "checkpoint" && e.Step%7 != 0 })

	place = strike(troupe.Change{Kind: troupe.ChangeRate, LR: 0.00123, MinLR: 0.00123})
	a.await("the restart", place, kindOf("restart"))
	a.await("the rate", place, func(e event) bool { return e.Kind == "step" && e.Rate == 0.00123 })
	a.await("a step", a.line.place(), stepFrom(1))
	if text := a.requests(); text != "" {
		t.Errorf("all is done, and the status says %q", text)
	}

	place = strike(troupe.Change{Kind: troupe.ChangeStop})
	end := a.await("the end", place, ended)
	if end.Error != "" || end.Count != 1 {
		t.Errorf("it ended with %v", end)
	}
	if _, err := os.Stat(end.Text); err != nil {
		t.Error(err)
	}
}

// TestRateAfterRollback: a learning rate that is requested after a rollback replaces an older request that took effect in a
// lost step.
func TestRateAfterRollback(t *testing.T) {
	beside(t)
	g := newGroup(t, &group{boss: settings{Silence: 5 * time.Second}})
	g.join(t, workers(3)...)
	a := askCluster(t, g, "run.steps=150", "run.checkpoint_every=0", "run.eval_every=0", "pipeline.stages=2", "optimizer.warmup_steps=0")
	a.await("step 50", 0, stepFrom(50))
	a.ask(troupe.Change{Kind: troupe.ChangeRate, LR: 9e-3, MinLR: 9e-3})
	a.await("the older rate", 0, func(e event) bool { return e.Rate == 9e-3 })
	place := a.line.place()
	a.kill("worker-0")
	a.await("the restart", place, kindOf("restart"))
	a.await("a step after it", a.line.place(), stepFrom(1))
	a.ask(troupe.Change{Kind: troupe.ChangeRate, LR: 1e-5, MinLR: 1e-5})
	if end := a.await("the end", place, ended); end.Error != "" {
		t.Fatalf("%v\n%s", end, g.describe())
	}
	warned := false
	events, _ := a.line.from(place)
	for _, e := range events {
		if e.Kind == "step" && e.Step > 120 && e.Rate != 1e-5 {
			t.Fatalf("step %d has the rate %g", e.Step, e.Rate)
		}
		warned = warned || e.Kind == "warning" && strings.Contains(e.Text, "the learning rate 1e-05 from step ") &&
			strings.Contains(e.Text, "cancels an earlier change to 0.009")
	}
	if !warned {
		t.Error("nothing is said of the older rate")
	}
}

// TestGaveUp: workers that released their ranks because the coordinator was frozen for longer than their lease get them again
// when it is back. The run recovers without help, and does not count as stopped.
func TestGaveUp(t *testing.T) {
	beside(t)
	g := newGroup(t, &group{boss: settings{Silence: 2 * time.Second, Lease: 3 * time.Second}})
	g.join(t, workers(2)...)
	a := askCluster(t, g, "run.steps=100000", "run.checkpoint_every=5", "run.eval_every=0", "pipeline.stages=2", "cluster.silence_s=2",
		"cluster.lease_s=3")
	a.await("a step", 0, stepFrom(1))
	lead := g.lead.cmd.Process
	if err := lead.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(5 * time.Second) // longer than the lease, by the clock that the workers have
	place := a.line.place()
	if err := lead.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	a.await("the restart", place, kindOf("restart"))
	a.await("a step after it", a.line.place(), stepFrom(1))
	a.ask(troupe.Change{Kind: troupe.ChangeStop})
	if end := a.await("the end", place, ended); end.Error != "" || end.Count != 1 {
		t.Errorf("%v\n%s", end, g.describe())
	}
}
