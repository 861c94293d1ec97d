package cluster

import (
	"errors"
	"slices"
	"testing"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/internal/plan"
)

// TestRescuers: if no worker may take the ranks of one that fails, a worker saves each that has its state: a replica, or the holder of its
// shadow. If another worker fails meanwhile, those that are left save the ranks of both. If none is left, there is no such attempt. If the
// worker is back meanwhile, the next attempt has the shadows that there are.
func TestRescuers(t *testing.T) {
	gone := errors.New("it has failed")
	for _, c := range []struct {
		name   string
		stages int
		sets   []string
		first  int
		from   int // the rank with which rank first is saved
		second int // the rank that is lost then
	}{
		{"replicas", 2, []string{"parallel.data=2"}, 1, -1, -1},
		{"shadows", 4, []string{`cluster.shadow="on"`}, 1, 2, 3},
		{"frozen, shadows", 4, []string{`cluster.shadow="on"`, `model.freeze=["1-2"]`}, 1, 2, 3},
	} {
		p := smallPlan(t, c.stages, append(c.sets, `cluster.place=["w0", "w1", "w2", "w3"]`)...)
		if c.from < 0 {
			copies := p.Grid().Group(c.first, grid.Copies)
			c.from = copies[1-slices.Index(copies, c.first)]
			c.second = slices.IndexFunc([]int{0, 1, 2, 3}, func(rank int) bool { return rank != c.first && rank != c.from })
		}
		a, h := placed(t, p, 4)
		a.as.Adopt = &actors.Target{}
		a.lost(h.worker(a.whose(c.first)).Member, gone)
		b, _, err := a.renew(nil)
		if err != nil || !b.renewal.rescue || b.whose(c.first) != a.whose(c.from) || b.shadows.Any() {
			t.Fatalf("%s: %v, rank %d is saved by %q, want %q", c.name, err, c.first, b.whose(c.first), a.whose(c.from))
		}
		saver := b.shareOf(h.worker(b.whose(c.first)).ID)
		r, err := b.renewal.pack(a.as, saver)
		own := saver.ranks
		if want := copiesOf(own, c.first, c.from); err != nil || !r.Rescue || !slices.Equal(r.Copies, want) {
			t.Errorf("%s: ranks %d copy from %d, want %d; rescue %t, %v", c.name, own, r.GetCopies(), want, r.GetRescue(), err)
		}
		b.as = a.as
		b.lost(h.worker(b.whose(c.second)).Member, gone)
		again, _, err := b.renew(nil)
		if err != nil || !again.renewal.rescue || again.whose(c.first) != a.whose(c.from) || len(again.shares) != 2 {
			t.Fatalf("%s: after a second failure: %v", c.name, err)
		}
		both := slices.Sorted(slices.Values([]int{c.first, c.second}))
		if lost := slices.Sorted(slices.Values(again.renewal.lost)); !slices.Equal(lost, both) {
			t.Errorf("%s: after a second failure ranks %d are saved", c.name, lost)
		}
		for _, s := range again.shares {
			if _, err := again.renewal.pack(a.as, s); err != nil {
				t.Errorf("%s: after a second failure worker %s has ranks %d: %v", c.name, s.Name, s.ranks, err)
			}
		}
		again.as = a.as
		again.lost(h.worker(a.whose(c.from)).Member, gone)
		if _, _, err := again.renew(nil); !errors.Is(err, plan.ErrNoRoom) || !errors.Is(err, plan.ErrNoHolder) {
			t.Errorf("%s: without a replica: %v", c.name, err)
		}

		a, h = placed(t, p, 4)
		a.as.Adopt = &actors.Target{}
		back := h.worker(a.whose(c.first))
		a.lost(back.Member, gone)
		if b, _, err = a.renew(nil); err != nil {
			t.Fatal(err)
		}
		b.as, back.attempt = a.as, nil
		next, _, err := b.renew(b.replacement)
		if err != nil || next.renewal.rescue || next.whose(c.first) != back.Name || !slices.Equal(next.shadows.At, a.shadows.At) {
			t.Fatalf("%s: when the worker is back: %v, shadows are at %d, want %d", c.name, err, next.shadows.At, a.shadows.At)
		}
		if m, err := next.renewal.pack(a.as, next.shareOf(back.ID)); err != nil || !slices.Equal(m.Copies, []int32{int32(c.from)}) {
			t.Errorf("%s: rank %d copies from %d, want %d; %v", c.name, c.first, m.GetCopies(), c.from, err)
		}
	}
}

// copiesOf returns, for each of some ranks, −1 or for one the rank that it copies from.
func copiesOf(ranks []int, one, from int) (all []int32) {
	for _, rank := range ranks {
		if rank == one {
			all = append(all, int32(from))
		} else {
			all = append(all, -1)
		}
	}
	return all
}

// roomForOne leaves each worker the memory of one rank.
func roomForOne(t *testing.T, p *plan.Plan, h *hosts) {
	t.Helper()
	need, err := p.RankBytes(plan.Shadows{})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range h.workers {
		w.Offer.MemoryBytes = slices.Max(need)
	}
}

// TestRescuedRanksAreComputed: workers that join while ranks are only saved get them, and the savers keep their own.
func TestRescuedRanksAreComputed(t *testing.T) {
	p := smallPlan(t, 2, "parallel.data=2")
	a, h := placed(t, p, 5)
	roomForOne(t, p, h)
	fifth := h.worker("w4")
	fifth.leaving = true
	first := h.worker(a.whose(0))
	a.lost(first.Member, errors.New("it has failed"))
	b, _, err := a.renew(nil)
	if err != nil || !b.renewal.rescue {
		t.Fatalf("no rescue: %v", err)
	}
	b.as = a.as
	b.lost(h.worker(b.whose(3)).Member, errors.New("it has failed"))
	first.attempt, fifth.leaving = nil, false
	c, _, err := b.renew(b.replacement)
	if err != nil || c.renewal.rescue {
		t.Fatal(err)
	}
	for rank, want := range []string{first.Name, a.whose(1), a.whose(2), fifth.Name} {
		if s := c.shareOf(h.worker(want).ID); c.whose(rank) != want || len(s.ranks) != 1 {
			t.Errorf("rank %d is with %q, which has %d; want %q", rank, c.whose(rank), s.ranks, want)
		}
	}
}
