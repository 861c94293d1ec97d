package cluster

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/cluster/internal/beat"
	"github.com/troupe-ml/troupe/cluster/internal/mesh"
	"github.com/troupe-ml/troupe/cluster/internal/transport"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/wire"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry/event"
	"github.com/troupe-ml/troupe/tensorops/cpu"
)

// TestMoveBy: the ranks of a worker that is told to stop move in its grace time, with time to load their state; those of a drained one when
// the step has ended. The first beat counts, also if the worker was drained before.
func TestMoveBy(t *testing.T) {
	log := deaf(t).log
	for _, c := range []struct{ grace, want time.Duration }{
		{25 * time.Second, 15 * time.Second}, {time.Minute, 50 * time.Second}, {5 * time.Second, 3 * time.Second}, {0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			drained, stopped := &workerState{leaving: true}, &workerState{leaving: true}
			id := uuid.New()
			co := &Coordinator{log: log, workers: map[uuid.UUID]*workerState{id: stopped}}
			if at := co.firstMove([]*workerState{drained, stopped}); !at.IsZero() {
				t.Errorf("before a worker is told to stop, ranks must move by %v", at)
			}
			want := time.Now().Add(c.want)
			co.leaving(id, c.grace)
			time.Sleep(leaveGrace / 2)
			co.leaving(id, c.grace)
			if at := co.firstMove([]*workerState{drained, stopped}); !at.Equal(want) {
				t.Errorf("with a grace time of %v, the ranks must move after %v, want %v", c.grace, time.Until(at)+leaveGrace/2, c.want)
			}
		})
	}
}

// placed is an attempt on a worker for each rank of a plan, w0 and so on, each on a host of its own. The other workers are free.
func placed(t *testing.T, p *plan.Plan, workers int) (*attempt, *hosts) {
	t.Helper()
	h := &hosts{Coordinator: deaf(t)}
	for i := range workers {
		id := uuid.UUID{byte(i)}
		h.workers[id] = &workerState{Member: beat.Member{ID: id, Name: fmt.Sprint("w", i), Address: fmt.Sprintf("10.0.0.%d:1", i+1),
			Offer: &wire.Offer{Cores: 8, MemoryBytes: 1 << 40, Kernels: "avx2"}}}
	}
	a, _, err := h.choose(p.Config(), min(workers, p.Grid().World()), false)
	if err != nil {
		t.Fatal(err)
	}
	a.as = plan.Assignment{Config: p.Config(), Plan: p}
	if err := a.divide(a.as); err != nil {
		t.Fatal(err)
	}
	h.mesh = mesh.New(mesh.Config{Self: uuid.New(), Logger: h.log}, unanswered{})
	t.Cleanup(h.mesh.Close)
	return a, h
}

// unanswered is a transport to nobody.
type unanswered struct{ transport.Transport }

func (unanswered) Send(string, *wire.Envelope) {}

// posted is such a transport that notes the control messages to each address.
type posted struct {
	unanswered
	mu sync.Mutex
	at map[string][]*wire.Control
	on func(address string, c *wire.Control) // called with each, if it is not nil
}

func (p *posted) Send(address string, e *wire.Envelope) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := e.GetControl(); c != nil && int(e.GetSeq()) > len(p.at[address]) { // it is not sent again
		if p.at[address] = append(p.at[address], c); p.on != nil {
			p.on(address, c)
		}
	}
}

// released are the attempts that the worker at an address was told to release, in order.
func (p *posted) released(address string) (all []uuid.UUID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.at[address] {
		if r := c.GetRelease(); r != nil {
			all = append(all, uuid.UUID(r.GetAttempt()))
		}
	}
	return all
}

// listen notes the messages to all workers from now on.
func (h *hosts) listen(t *testing.T) *posted {
	t.Helper()
	p := &posted{at: make(map[string][]*wire.Control)}
	h.mesh = mesh.New(mesh.Config{Self: uuid.New(), Logger: h.log}, p)
	t.Cleanup(h.mesh.Close)
	for _, w := range h.workers {
		if err := h.mesh.SetPeer(&wire.Peer{Name: w.Name, Incarnation: w.ID[:], Address: w.Address}); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// smallPlan is the plan of a small run.
func smallPlan(t *testing.T, stages int, sets ...string) *plan.Plan {
	t.Helper()
	p, err := plan.Resolve(gpuRun(t, stages, sets...), nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// worker returns the worker of a name.
func (h *hosts) worker(name string) *workerState {
	for _, w := range h.workers {
		if w.Name == name {
			return w
		}
	}
	return nil
}

// whose returns the name of the worker that has a rank; "": none has.
func (a *attempt) whose(rank int) string {
	for _, s := range a.shares {
		if slices.Contains(s.ranks, rank) {
			return s.Name
		}
	}
	return ""
}

// TestReserve: a free worker is reserved for the ranks of one that leaves, until the next attempt gives them to it. If none can get the
// ranks of all that leave, none is reserved.
func TestReserve(t *testing.T) {
	p := smallPlan(t, 2, "parallel.data=2")
	a, h := placed(t, p, 5)
	free := func() int { return len(h.free()) }
	leaves := h.worker(a.whose(1))
	leaves.leaving = true
	if err := a.reserve([]*workerState{leaves}); err != nil || h.worker("w4").reserved != a || free() != 0 {
		t.Fatalf("one leaves: %v, %d workers are free for other runs, want 0", err, free())
	}
	if _, _, err := h.choose(p.Config(), 1, false); !errors.Is(err, plan.ErrNoRoom) {
		t.Errorf("another run gets the reserved worker: %v", err)
	}
	second := h.worker(a.whose(2))
	second.leaving = true
	changed := h.changed
	if err := a.reserve([]*workerState{leaves, second}); !errors.Is(err, plan.ErrNoRoom) || free() != 1 {
		t.Errorf("two leave: %v, %d workers are free for other runs, want 1", err, free())
	}
	select {
	case <-changed:
	default:
		t.Error("runs that wait for workers do not hear that one is not reserved any more")
	}
	second.leaving = false
	if err := a.reserve([]*workerState{leaves}); err != nil || free() != 0 {
		t.Fatalf("one leaves again: %v, %d workers are free for other runs, want 0", err, free())
	}
	a.lost(leaves.Member, errLeaves)
	b, _, err := a.renew(a.replacement)
	if err != nil || b.whose(1) != "w4" || h.worker("w4").attempt != b || h.worker("w4").reserved != nil {
		t.Fatalf("the next attempt: %v", err)
	}
	h.worker(b.shares[0].Name).attempt = nil
	if err := a.reserve([]*workerState{leaves}); err != nil || free() != 1 {
		t.Errorf("an attempt that has ended: %v, %d workers are free for other runs, want 1", err, free())
	}
}

// TestReservedFor: a worker stays reserved for the ranks of another one, and gets them, also if another free worker would be preferred.
func TestReservedFor(t *testing.T) {
	a, h := placed(t, smallPlan(t, 4, `cluster.shadow="on"`), 5)
	leaves := h.worker(a.whose(1))
	leaves.leaving = true
	if err := a.reserve([]*workerState{leaves}); err != nil {
		t.Fatal(err)
	}
	ended := 0
	reserved, joined := h.worker("w4"), *h.worker("w4")
	a.preparing = map[uuid.UUID]*preparing{reserved.ID: {end: func() { ended++ }}}
	joined.ID, joined.Name, joined.Address, joined.reserved, joined.due = uuid.UUID{9}, "w0a", leaves.Address, nil, nil
	h.workers[joined.ID] = &joined
	if err := a.reserve([]*workerState{leaves}); err != nil || reserved.reserved != a || joined.reserved != nil || ended > 0 {
		t.Errorf("reserved again: %v; the first one is reserved: %t, the new one: %t; %d preparations have ended", err,
			reserved.reserved == a, joined.reserved == a, ended)
	}
	a.lost(leaves.Member, errLeaves)
	if b, _, err := a.renew(a.replacement); err != nil || b.whose(1) != "w4" || ended != 1 || len(a.preparing) > 0 {
		t.Fatalf("the next attempt: %v; %d preparations have ended, want 1", err, ended)
	}
}

// TestReserveEnds: the reserved worker is free for other runs when the attempt ends in any way. If it fails itself, another one is
// reserved, if there is one.
func TestReserveEnds(t *testing.T) {
	gone := errors.New("it has failed")
	for _, c := range []struct {
		name    string
		workers int
		ends    func(a *attempt, h *hosts)
		free    []string // for other runs
		fails   bool     // no free worker can be reserved then
	}{
		{"the run ends", 5, func(a *attempt, _ *hosts) { a.Release() }, []string{"w4"}, false},
		{"the drain ends", 6, func(a *attempt, h *hosts) {
			a.lost(h.worker(a.whose(1)).Member, errLeaves)
			if b, _, err := a.renew(a.replacement); err != nil || b.whose(1) != "w4" {
				t.Errorf("the next attempt: %v", err)
			}
		}, []string{"w5"}, false},
		{"another worker fails, and the run restarts", 5, func(a *attempt, h *hosts) {
			a.lost(h.worker(a.whose(2)).Member, gone)
			a.Release()
		}, []string{"w4"}, false},
		{"the worker that leaves fails, and others take its ranks", 5, func(a *attempt, h *hosts) {
			a.lost(h.worker(a.whose(1)).Member, gone)
			if b, _, err := a.renew(nil); err != nil || b.whose(1) == "w4" {
				t.Errorf("the next attempt: %v", err)
			}
		}, []string{"w4"}, false},
		{"the reserved worker fails", 5, func(_ *attempt, h *hosts) { h.leave(h.worker("w4").ID) }, nil, true},
		{"the reserved worker leaves, too", 5, func(_ *attempt, h *hosts) { h.worker("w4").leaving = true }, nil, true},
		{"the reserved worker fails, and another is free", 6, func(_ *attempt, h *hosts) { h.leave(h.worker("w4").ID) }, []string{"w5"},
			false},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, h := placed(t, smallPlan(t, 2, "parallel.data=2"), c.workers)
			leaving := []*workerState{h.worker(a.whose(1))}
			leaving[0].leaving = true
			if err := a.reserve(leaving); err != nil || h.worker("w4").reserved != a {
				t.Fatal(err)
			}
			c.ends(a, h)
			var free []string
			for _, w := range h.free() {
				free = append(free, w.Name)
			}
			if !slices.Equal(free, c.free) {
				t.Errorf("workers %v are free for other runs, want %v", free, c.free)
			}
			switch err := a.reserve(leaving); {
			case c.fails != errors.Is(err, plan.ErrNoRoom):
				t.Errorf("another worker is reserved: %v", err)
			case a.ended.IsZero() && len(c.free) > 0 && h.worker(c.free[0]).reserved != a:
				t.Errorf("worker %s is not reserved instead", c.free[0])
			}
		})
	}
}

// pausedRun starts the actors of a plan in this process, and waits until they pause.
func pausedRun(t *testing.T, p *plan.Plan) *actors.Run {
	t.Helper()
	s, err := p.Stages(0, stages.InitWeights(1), false, p.LocalGroups())
	if err != nil {
		t.Fatal(err)
	}
	d, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	paused := make(chan struct{})
	s.Run, s.Device, s.Data, s.MicrobatchSize, s.Context, s.Sequences = uuid.New(), d, zeros{}, p.Config().Batch.Microbatch,
		p.Config().Model.Context, p.Config().Batch.Sequences
	s.Rate, s.Steps, s.Keep = stages.Rate{LR: 1e-2, Steps: 30}, 30, func([]int) error { return nil }
	s.Requests = []actors.Request{{Change: event.Change{Kind: event.ChangePause}}}
	s.OnEvent = func(e event.Event) {
		if e, ok := e.(event.PauseEvent); ok && e.Paused {
			close(paused)
		}
	}
	run, err := actors.Start(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		run.Kill()
		run.Wait()
		for _, k := range run.Kept() {
			_ = k.Close()
		}
	})
	<-paused
	return run
}

// zeros are data of one token.
type zeros struct{}

func (zeros) Train(int64, int, []int32, []int32) error { return nil }
func (zeros) EvalWindows() int                         { return 0 }
func (zeros) EvalLen(int) int                          { return 0 }
func (zeros) EvalFill(int, []int32, []int32) error     { return nil }

// TestLeaveDuringRescue: an attempt that only writes a checkpoint finishes it, although a worker is told to leave that a free one could
// replace, and although the time in which its ranks must move is over. Another attempt lets it go.
func TestLeaveDuringRescue(t *testing.T) {
	p := smallPlan(t, 2, "parallel.data=2")
	for _, rescue := range []bool{true, false} {
		a, h := placed(t, p, 5)
		roomForOne(t, p, h)
		if rescue {
			h.worker("w4").leaving = true // no free worker
			a.lost(h.worker(a.whose(0)).Member, errors.New("it has failed"))
			b, _, err := a.renew(nil)
			if err != nil || !b.renewal.rescue {
				t.Fatalf("no rescue: %v", err)
			}
			b.as = a.as
			a, h.worker("w4").leaving = b, false
		}
		run := pausedRun(t, p)
		a.Watch(run)
		leaves := h.worker(a.whose(3))
		leaves.leaving, leaves.moveBy = true, time.Now().Add(time.Hour)
		a.leave()
		a.abandon() // it is time
		switch out := run.Wait(); {
		case rescue && (out.Regroup == nil || !slices.Equal(out.Regroup.Leaving, []string{leaves.Name})):
			t.Errorf("a rescue was abandoned: %v", out.Err)
		case !rescue && !errors.Is(out.Err, errLeaves):
			t.Errorf("the worker does not leave: %v, %v", out.Err, out.Regroup)
		}
		a.Release()
	}
}

// TestUnreachableWhileDividing: beats report broken links while the ranks are divided. It is for the race detector.
func TestUnreachableWhileDividing(t *testing.T) {
	a, h := placed(t, smallPlan(t, 4, `cluster.shadow="on"`), 4)
	h.cfg.Silence = time.Hour
	w0, w1 := h.worker("w0"), h.worker("w1")
	var beats sync.WaitGroup
	beats.Go(func() {
		for range 100 {
			a.unreachable(w0.Member, []*wire.Unreachable{{Incarnation: w1.ID[:], ForS: 1}})
			h.mu.Lock()
			_ = a.computes(w1.ID)
			h.mu.Unlock()
		}
	})
	for range 10 {
		if err := a.divide(a.as); err != nil {
			t.Error(err)
		}
	}
	beats.Wait()
}

// TestShareOutToStaying: the ranks of a worker that fails go to workers that stay, not to one that leaves and keeps its own until then.
func TestShareOutToStaying(t *testing.T) {
	a, h := placed(t, smallPlan(t, 4, `cluster.shadow="on"`), 4)
	failed := h.worker(a.whose(1))
	for _, rank := range []int{0, 3} {
		h.worker(a.whose(rank)).leaving = true
	}
	a.lost(failed.Member, errors.New("it has failed"))
	b, _, err := a.renew(nil)
	if err != nil {
		t.Fatal(err)
	}
	for rank, want := range []string{a.whose(0), a.whose(2), a.whose(2), a.whose(3)} {
		if got := b.whose(rank); got != want || b.renewal.rescue {
			t.Errorf("rank %d is with %q, want %q", rank, got, want)
		}
	}
}
