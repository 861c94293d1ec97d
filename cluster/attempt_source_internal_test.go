package cluster

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/wire"
)

// TestSources: a worker that leaves keeps its ranks in the next attempt if the holder of their shadows fails, also after the next attempt
// has begun to load them elsewhere. It does not if their state is in another process, or if it has gone itself.
func TestSources(t *testing.T) {
	gone := errors.New("it has failed")
	var h *hosts
	var at []string // by rank: the worker; the shadow of each rank is with the next one
	begin := func() (a *attempt) {
		a, h = placed(t, smallPlan(t, 5, `cluster.shadow="on"`), 7) // w5 and w6 are free
		a.as.Adopt, at = &actors.Target{}, nil
		for rank := range 5 {
			at = append(at, a.whose(rank))
		}
		h.worker(at[1]).leaving = true
		a.lost(h.worker(at[1]).Member, errLeaves)
		return a
	}
	next := func(a *attempt, unloaded ...int) *attempt {
		t.Helper()
		b, _, err := a.renewWithout(unloaded, a.replacement)
		if err != nil {
			t.Fatal(err)
		}
		b.as = a.as
		return b
	}
	check := func(name string, b *attempt, lost []int, left int, at ...string) {
		t.Helper()
		for rank, want := range at {
			if got := b.whose(rank); got != want {
				t.Errorf("%s: rank %d is with %q, want %q", name, rank, got, want)
			}
		}
		if got := slices.Sorted(slices.Values(b.renewal.lost)); !slices.Equal(got, lost) || len(b.renewal.left) != left {
			t.Errorf("%s: ranks %d get their state from others, want %d; %d workers have left, want %d", name, got, lost,
				len(b.renewal.left), left)
		}
	}

	a := begin()
	a.lost(h.worker(at[2]).Member, gone)
	b := next(a)
	check("the holder fails before", b, []int{2}, 0, at[0], at[1], "w5", at[3], at[4])
	if s := b.shareOf(h.worker(at[1]).ID); h.worker(at[1]).attempt != b || s.kept != a.id {
		t.Error("the worker that leaves does not continue with what it has kept")
	} else if m, err := b.renewal.pack(b.as, s); err != nil || string(m.Attempt) != string(a.id[:]) || len(m.Copies) > 0 {
		t.Errorf("its assignment is %v, %v", m, err)
	}

	a = begin()
	b = next(a)
	check("no other worker fails", b, []int{1}, 1, at[0], "w5", at[2], at[3], at[4])
	if ranks := b.leftRanks(); h.worker(at[1]).attempt != a || !slices.Equal(ranks, []int{1}) {
		t.Errorf("the worker that leaves is not kept, but ranks %d are", ranks)
	}
	left := h.worker(at[1]).ID
	if all := fmt.Sprint(a.computes(left), b.computes(h.worker("w5").ID)); all != "[] [1]" || !a.keeps(left) || b.keeps(left) {
		t.Errorf("the worker that leaves and the new one compute ranks %s; the first keeps their state: %t", all, a.keeps(left))
	}
	b.loaded()
	if a.keeps(left) {
		t.Error("the worker that leaves keeps state when the new one has it")
	}
	a = begin()
	b = next(a)
	b.lost(h.worker(at[4]).Member, gone)
	c := next(b, 1)
	check("another worker fails", c, []int{1, 4}, 1, at[0], "w5", at[2], at[3], "w6")
	c.lost(h.worker(at[2]).Member, gone)
	h.worker(at[4]).attempt = nil // a worker of this name is there again
	d := next(c, 1, 4)
	check("then the holder", d, []int{2, 4}, 0, at[0], at[1], at[4], at[3], "w6")
	if s := d.shareOf(h.worker(at[1]).ID); s == nil || s.kept != a.id {
		t.Error("the worker that leaves does not continue with what it has kept of the first attempt")
	}
	if len(d.renewal.dropped) != 1 || d.renewal.dropped[0].Name != "w5" || d.renewal.dropped[0].of != c || h.worker("w5").attempt != c {
		t.Errorf("the worker that was to get its ranks is not freed: %v", d.renewal.dropped)
	}
	for rank, from := range map[int]int32{2: 3, 4: 0} {
		m, err := d.renewal.pack(d.as, d.shareOf(h.worker(d.whose(rank)).ID))
		if err != nil || !slices.Equal(m.Copies, []int32{from}) {
			t.Errorf("rank %d copies from %d, want rank %d; %v", rank, m.GetCopies(), from, err)
		}
	}

	a = begin()
	b = next(a)
	b.lost(h.worker(at[0]).Member, gone)
	c = next(b, 1)
	check("a worker fails whose shadow it holds", c, []int{0}, 0, "w6", at[1], at[2], at[3], at[4])

	a = begin()
	b = next(a)
	b.lost(h.worker("w5").Member, gone)
	check("the new worker fails", next(b), []int{1}, 1, at[0], "w6", at[2], at[3], at[4])

	a = begin()
	b = next(a)
	w5 := h.worker("w5")
	w5.Offer.MemoryBytes, h.worker("w6").leaving = mostOf(t, a.as.Plan), true // there is no other free worker
	b.lost(h.worker(at[2]).Member, gone)
	c = next(b, 1)
	check("the holder fails while the only free worker loads", c, []int{2}, 0, at[0], at[1], "w5", at[3], at[4])
	if len(c.renewal.dropped) > 0 || w5.attempt != c {
		t.Errorf("the free worker is not used: %v are freed", c.renewal.dropped)
	}
	if m, err := c.renewal.pack(c.as, c.shareOf(w5.ID)); err != nil || !slices.Equal(m.Copies, []int32{3}) {
		t.Errorf("it copies from %d, want rank 3; %v", m.GetCopies(), err)
	}

	a = begin()
	b = next(a)
	h.worker("w5").leaving, h.worker("w6").leaving = true, true
	b.lost(h.worker(at[2]).Member, gone)
	if _, _, err := b.renewWithout([]int{1}, b.replacement); !errors.Is(err, plan.ErrNoRoom) {
		t.Errorf("a worker that leaves itself gets other ranks: %v", err)
	}

	a = begin()
	b = next(a)
	a.observe(h.worker(at[1]).Member, &wire.StatusReply{Attempt: a.id[:], GaveUp: "the coordinator was silent"})
	if ranks := b.leftRanks(); len(ranks) > 0 || a.keeps(h.worker(at[1]).ID) {
		t.Errorf("a worker that has dropped what it kept still has ranks %d", ranks)
	}
	b.lost(h.worker(at[2]).Member, gone)
	c = next(b, 1)
	check("the worker that leaves has dropped its state", c, []int{1, 2}, 0, at[0], "w5", "w6", at[3], at[4])
	if len(c.renewal.dropped) != 1 || c.renewal.dropped[0].Name != at[1] {
		t.Errorf("the worker that has dropped its state is not freed: %v", c.renewal.dropped)
	}

	a = begin()
	b = next(a)
	delete(h.workers, h.worker(at[1]).ID)
	if ranks := b.leftRanks(); len(ranks) > 0 {
		t.Errorf("a worker that has gone still has ranks %d", ranks)
	}
	b.lost(h.worker(at[2]).Member, gone)
	c = next(b, 1)
	check("both have gone", c, []int{1, 2}, 0, at[0], "w5", "w6", at[3], at[4])
	if _, err := c.renewal.pack(c.as, c.shareOf(h.worker("w5").ID)); !errors.Is(err, plan.ErrNoHolder) {
		t.Errorf("the state of rank 1 is said to be somewhere: %v", err)
	}
}

// mostOf returns the memory that the largest rank of a plan with a shadow for each rank needs, with the shadows that it holds.
func mostOf(t *testing.T, p *plan.Plan) int64 {
	t.Helper()
	var sites []plan.Site
	for rank := range p.Grid().World() {
		sites = append(sites, plan.Site{Process: fmt.Sprint(rank)})
	}
	need, err := p.RankBytes(p.PlaceShadows(sites, nil))
	if err != nil {
		t.Fatal(err)
	}
	return slices.Max(need)
}
