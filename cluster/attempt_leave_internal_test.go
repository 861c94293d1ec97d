package cluster

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/cluster/internal/beat"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/wire"
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
	return a, h
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
