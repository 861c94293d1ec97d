package cluster_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/cluster"
)

// asker is an operator who asks a run of a group for something.
type asker struct {
	t      *testing.T
	g      *group
	client *cluster.Client
	id     string
	out    string

	mu     sync.Mutex
	events []troupe.Event
	end    error
	result troupe.Result
	done   chan struct{}
}

// newAsker submits a run, and follows it.
func newAsker(t *testing.T, g *group, sets ...string) *asker {
	t.Helper()
	token, err := cluster.ParseToken(g.ask(t, command{Do: "token", Operator: true, Seconds: 3600}).Text)
	if err != nil {
		t.Fatal(err)
	}
	a := &asker{t: t, g: g, out: filepath.Join(t.TempDir(), "out"), done: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	if a.client, err = cluster.NewClient(ctx, cluster.ClientConfig{Address: g.address, Token: token}); err == nil {
		a.id, err = a.client.Submit(ctx, cluster.Submission{Config: []byte(smallRun), Sets: keys(t, a.out, sets)})
	}
	var run *cluster.Followed
	if err == nil {
		run, err = a.client.Follow(ctx, a.id, cluster.FollowOptions{})
	}
	if err != nil {
		cancel()
		t.Fatalf("%v\n%s", err, g.describe())
	}
	go func() { // ends with the run, or with ctx
		defer close(a.done)
		for e := range run.Events() {
			a.mu.Lock()
			a.events = append(a.events, e)
			a.mu.Unlock()
		}
		a.result, a.end = run.Wait()
	}()
	t.Cleanup(func() {
		cancel()
		<-a.done
		a.client.Close()
	})
	return a
}

// place is how many events have come.
func (a *asker) place() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.events)
}

// await waits for an event from a place on.
func (a *asker) await(what string, place int, want func(troupe.Event) bool) {
	a.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		a.mu.Lock()
		found := slices.ContainsFunc(a.events[place:], want)
		a.mu.Unlock()
		if found {
			return
		}
	}
	a.t.Fatalf("%s: it has not come\n%s", what, a.g.describe())
}

func (a *asker) ask(ch troupe.Change) {
	a.t.Helper()
	if _, err := a.client.Change(context.Background(), a.id, ch); err != nil {
		a.t.Fatalf("%v: %v\n%s", ch, err, a.g.describe())
	}
}

func (a *asker) status() (cluster.RunSummary, actors.Status) {
	a.t.Helper()
	s, status, err := a.client.Status(context.Background(), a.id)
	if err != nil {
		a.t.Fatalf("%v\n%s", err, a.g.describe())
	}
	return s, status
}

// kill ends a worker, which keeper starts again.
func (a *asker) kill(name string) {
	a.t.Helper()
	a.g.mu.Lock()
	p := a.g.workers[name]
	a.g.mu.Unlock()
	if err := p.kill(); err != nil {
		a.t.Fatal(err)
	}
}

func restarted(e troupe.Event) bool { _, is := e.(troupe.RestartEvent); return is }

// TestRequestsSurvive asks a run for something and then kills one of its workers: what was asked for is done
// all the same, and until it is the status names it.
func TestRequestsSurvive(t *testing.T) {
	beside(t)
	times := 1
	if os.Getenv("TROUPE_KILLS") == "1" {
		times = 10
	}
	seed := uint64(time.Now().UnixNano()) //nolint:gosec // after 1970
	random := rand.New(rand.NewPCG(seed, 3))
	t.Logf("seed %d", seed)
	g := newGroup(t, &group{boss: settings{Silence: 5 * time.Second}})
	g.join(t, workers(2)...)
	keep := &keeper{g: g, stop: make(chan struct{})}
	t.Cleanup(func() { close(keep.stop); keep.running.Wait() })
	for _, name := range workers(2) {
		keep.keep(name, func() time.Duration { return 0 })
	}
	soon := func(most time.Duration) { time.Sleep(time.Duration(random.Int64N(int64(most)))) }
	for i := range times {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			a := newAsker(t, g, "run.steps=100000", "run.checkpoint_every=7", "run.eval_every=0", "run.keep=2", "pipeline.stages=2", "cluster.max_restarts=100")
			// strike kills a worker around the time of a request, and waits until the run has recovered.
			strike := func(ch troupe.Change) int {
				t.Helper()
				place := a.place()
				a.await("a step", place, func(e troupe.Event) bool { s, is := e.(troupe.StepEvent); return is && s.Step > 0 })
				soon(30 * time.Millisecond)
				place = a.place()
				name := workers(2)[random.IntN(2)]
				a.ask(ch)
				soon(10 * time.Millisecond)
				a.kill(name)
				return place
			}
			place := strike(troupe.Change{Kind: actors.Pause})
			a.await("the restart", place, restarted)
			a.await("the pause of the next attempt", a.place(), func(e troupe.Event) bool { p, is := e.(troupe.PauseEvent); return is && p.Paused })
			before, status := a.status()
			if before.State != "paused" || !slices.Equal(status.Requests, []troupe.Change{{Kind: actors.Pause}}) {
				t.Errorf("paused, its state is %s and its requests are %v", before.State, status.Requests)
			}
			time.Sleep(100 * time.Millisecond)
			if now, _ := a.status(); now.Step != before.Step {
				t.Errorf("the paused run trains: step %d, then %d", before.Step, now.Step)
			}
			a.ask(troupe.Change{Kind: actors.Resume})

			place = strike(troupe.Change{Kind: actors.Checkpoint})
			a.await("the restart", place, restarted)
			a.await("the checkpoint", place, func(e troupe.Event) bool {
				c, is := e.(troupe.CheckpointEvent)
				return is && c.Step%7 != 0
			})

			place = strike(troupe.Change{Kind: actors.SetRate, LR: 0.00123, MinLR: 0.00123})
			a.await("the restart", place, restarted)
			a.await("the rate", place, func(e troupe.Event) bool { s, is := e.(troupe.StepEvent); return is && s.LR != nil && *s.LR == 0.00123 })
			place = a.place()
			a.await("a step", place, func(e troupe.Event) bool { _, is := e.(troupe.StepEvent); return is })
			if _, status := a.status(); len(status.Requests) > 0 {
				t.Errorf("done, there are the requests %v", status.Requests)
			}

			strike(troupe.Change{Kind: actors.Stop, Step: 0})
			select {
			case <-a.done:
			case <-time.After(patience):
				t.Fatalf("the run doesn't stop\n%s", g.describe())
			}
			if a.end != nil || !a.result.Stopped || a.result.Dir == "" {
				t.Errorf("it ended with %+v, %v", a.result, a.end)
			}
			if _, err := os.Stat(a.result.Dir); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestRateAfterRollback: a learning rate that is asked for after the run was rolled back counts, and no older one
// that was to take effect at once in a later step, which was lost.
func TestRateAfterRollback(t *testing.T) {
	beside(t)
	g := newGroup(t, &group{boss: settings{Silence: 5 * time.Second}})
	g.join(t, workers(3)...)
	a := newAsker(t, g, "run.steps=150", "run.checkpoint_every=0", "run.eval_every=0", "pipeline.stages=2", "optimizer.warmup_steps=0")
	step := func(n int) func(troupe.Event) bool {
		return func(e troupe.Event) bool { s, is := e.(troupe.StepEvent); return is && s.Step >= n }
	}
	a.await("step 50", 0, step(50))
	a.ask(troupe.Change{Kind: actors.SetRate, LR: 9e-3, MinLR: 9e-3})
	a.await("the older rate", 0, func(e troupe.Event) bool { s, is := e.(troupe.StepEvent); return is && s.LR != nil && *s.LR == 9e-3 })
	place := a.place()
	a.kill("worker-0")
	a.await("the restart", place, restarted)
	a.await("a step after it", a.place(), step(1))
	a.ask(troupe.Change{Kind: actors.SetRate, LR: 1e-5, MinLR: 1e-5})
	<-a.done
	if a.end != nil {
		t.Fatalf("%v\n%s", a.end, g.describe())
	}
	last, warned := 0.0, false
	for _, e := range a.events[place:] {
		switch e := e.(type) {
		case troupe.StepEvent:
			if e.LR == nil {
				continue
			}
			last = *e.LR
			if e.Step > 120 && last != 1e-5 {
				t.Fatalf("step %d has the rate %g", e.Step, last)
			}
		case troupe.WarningEvent:
			warned = warned || strings.Contains(e.Text, "the learning rate 1e-05 from step ") && strings.Contains(e.Text, "cancels 0.009")
		}
	}
	if last != 1e-5 || !warned {
		t.Errorf("the last rate is %g; warned: %v", last, warned)
	}
}

// TestGaveUp: workers that give up their ranks, since the coordinator was frozen for longer than their lease, are
// given them again when it is back: the run goes on by itself, and nothing takes it for one that was ended.
func TestGaveUp(t *testing.T) {
	beside(t)
	g := newGroup(t, &group{boss: settings{Silence: 2 * time.Second, Lease: 3 * time.Second}})
	g.join(t, workers(2)...)
	a := newAsker(t, g, "run.steps=100000", "run.checkpoint_every=5", "run.eval_every=0", "pipeline.stages=2", "cluster.silence_s=2", "cluster.lease_s=3")
	step := func(e troupe.Event) bool { s, is := e.(troupe.StepEvent); return is && s.Step > 0 }
	a.await("a step", 0, step)
	lead := g.lead.cmd.Process
	if err := lead.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(5 * time.Second) // longer than the lease, by the clock that the workers have
	place := a.place()
	if err := lead.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	a.await("the restart", place, restarted)
	a.await("a step after it", a.place(), step)
	a.ask(troupe.Change{Kind: actors.Stop})
	<-a.done
	if a.end != nil || !a.result.Stopped {
		t.Errorf("%+v, %v\n%s", a.result, a.end, g.describe())
	}
}
