package cluster

import (
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/internal/wire"
)

// TestRenewedPart: an assignment ends the parts of older attempts, except for the one that it continues, which may be about to keep its
// stages. That one has keepWait to end by itself.
func TestRenewedPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &membership{worker: &worker{log: slog.New(slog.DiscardHandler)}, parts: make(map[uuid.UUID]*part),
			gaveUp: make(map[uuid.UUID]string)}
		older := func() *part {
			p := &part{w: w, id: uuid.New(), dropped: make(chan struct{})}
			w.parts[p.id] = p
			return p
		}
		renewed, other, late := older(), older(), older()
		run, attempt := uuid.New(), uuid.New()
		m := &wire.Assign{Run: run[:], Attempt: attempt[:], Generation: 1, Renewal: &wire.Renewal{Attempt: renewed.id[:]}}
		_, old, err := w.accept(m)
		if err != nil || len(old) != 3 {
			t.Fatalf("accept: %d parts, %v; want 3", len(old), err)
		}
		m.Generation++
		if _, _, err := w.accept(m); err == nil || len(w.parts) != 4 {
			t.Errorf("an attempt is assigned twice: %v; %d parts", err, len(w.parts))
		}
		if renewed.ended || !other.ended {
			t.Errorf("the renewed part was told to end: %t, the other one: %t; want false and true", renewed.ended, other.ended)
		}

		time.AfterFunc(keepWait/2, func() { close(renewed.dropped) })
		began := time.Now()
		renewed.waitAtMost(keepWait)
		if took := time.Since(began); took != keepWait/2 || renewed.ended {
			t.Errorf("waited %v for a part that ends after %v; it was told to end: %t, want false", took, keepWait/2, renewed.ended)
		}

		late.ended = false
		time.AfterFunc(2*keepWait, func() { close(late.dropped) })
		began = time.Now()
		late.waitAtMost(keepWait)
		if took := time.Since(began); took != 2*keepWait || !late.ended {
			t.Errorf("waited %v for a part that ends after %v; it was told to end: %t, want true", took, 2*keepWait, late.ended)
		}
	})
}

// TestDroppedKept: a worker that drops what it has kept, because its lease is over, tells the coordinator so until that releases the
// attempt.
func TestDroppedKept(t *testing.T) {
	w := &membership{worker: &worker{log: slog.New(slog.DiscardHandler)}, gaveUp: make(map[uuid.UUID]string)}
	const why = "the coordinator was silent"
	id := uuid.New()
	w.kept = &keptPart{attempt: id, set: &device.Set{}, p: &part{w: w}}
	w.dropKept(why)
	w.running.Wait()
	all := w.status()
	if w.kept != nil || len(all) != 1 || string(all[0].GetAttempt()) != string(id[:]) || all[0].GetGaveUp() != why {
		t.Errorf("after it has dropped %v, the status is %v", w.kept, all)
	}
	w.dropKept("again")
	if all := w.status(); len(all) != 1 || all[0].GetGaveUp() != why {
		t.Errorf("dropped twice: %v", all)
	}
}

// TestWithoutKept: a worker needs memory for the ranks and the shadows that it has not kept.
func TestWithoutKept(t *testing.T) {
	ranks, shadows := []int{1, 2}, []int{1, 2, 0, 5} // rank 2's shadow and that of rank 3 are elsewhere
	for _, c := range []struct {
		kept          *keptPart
		own, shadowed []int
	}{
		{nil, []int{1, 2}, []int{0, 1}},
		{&keptPart{stages: []*actors.Kept{{Rank: 1}}}, []int{2}, []int{0, 1}},
		{&keptPart{stages: []*actors.Kept{{Rank: 1}, {Rank: 2}}}, nil, []int{0, 1}},
	} {
		if own, shadowed := c.kept.without(ranks, shadows); !slices.Equal(own, c.own) || !slices.Equal(shadowed, c.shadowed) {
			t.Errorf("with %+v: ranks %d, shadows of %d; want %d and %d", c.kept, own, shadowed, c.own, c.shadowed)
		}
	}
}

// TestOwnRanks: in a rescue, a worker needs no memory for ranks that save from what it has kept of others, except those that get their
// state from another worker.
func TestOwnRanks(t *testing.T) {
	hosts := []string{"", "", "", "elsewhere"}
	for _, c := range []struct {
		r    *wire.Renewal
		want []int
	}{
		{nil, []int{0, 1, 2}},
		{&wire.Renewal{Rescue: true}, []int{0, 1, 2}},
		{&wire.Renewal{Rescue: true, Copies: []int32{-1, 0, 3}}, []int{0, 2}},
		{&wire.Renewal{Copies: []int32{-1, 0, 3}}, []int{0, 1, 2}},
		{&wire.Renewal{Rescue: true, Copies: []int32{-1, 9, -1}}, []int{0, 1, 2}},
	} {
		if got := ownRanks(c.r, []int{0, 1, 2}, hosts); !slices.Equal(got, c.want) {
			t.Errorf("%v: ranks %d, want %d", c.r, got, c.want)
		}
	}
}
