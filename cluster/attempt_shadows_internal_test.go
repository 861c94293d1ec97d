package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/cluster/internal/beat"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/wire"
)

// TestDeclinedShadows: if cluster.shadow = "auto" uses no shadows because of their cost, the ranks are divided as without them. A worker
// that would have no room for shadows gets as many ranks as the others.
func TestDeclinedShadows(t *testing.T) {
	for _, mode := range []string{plan.ShadowAuto, plan.ShadowOff} {
		p, err := plan.Resolve(gpuRun(t, 4, fmt.Sprintf("cluster.shadow=%q", mode)), nil)
		if err != nil {
			t.Fatal(err)
		}
		need, err := p.RankBytes(plan.Shadows{})
		if err != nil {
			t.Fatal(err)
		}
		const much = 1 << 40
		little := need[2] + need[3] + 4096
		h := &hosts{Coordinator: deaf(t)}
		for i, bytes := range []int64{much, little} {
			id := uuid.UUID{byte(i)}
			h.workers[id] = &workerState{Member: beat.Member{ID: id, Name: fmt.Sprint("w", i), Address: fmt.Sprintf("10.0.0.%d:1", i+1),
				Offer: &wire.Offer{Cores: 8, MemoryBytes: bytes, Kernels: "avx2"}}}
		}
		a, _, err := h.choose(p.Config(), 2, false)
		if err != nil {
			t.Fatal(err)
		}
		as := plan.Assignment{Config: p.Config(), Plan: p}
		ranks := func() string { return fmt.Sprint(a.shares[0].ranks, " ", a.shares[1].ranks) }
		shadows, err := a.wantsShadows(as)
		if err == nil {
			err = a.divideHosts(as, shadows)
		}
		if uneven := ranks() != "[0 1] [2 3]"; err != nil || uneven != (mode == plan.ShadowAuto) {
			t.Errorf("%s: before the cost is known, the workers have ranks %s, %v", mode, ranks(), err)
		}
		for _, s := range a.shares {
			s.ranks = nil
		}
		if err := a.divide(as); err != nil || ranks() != "[0 1] [2 3]" || a.shadows.Any() || a.shadows.Why == "" {
			t.Errorf("%s: the workers have ranks %s, shadows are at %d (%s), %v", mode, ranks(), a.shadows.At, a.shadows.Why, err)
		}
	}
}

// TestDroppedShadows: if a worker refuses its ranks with shadows, they are divided again as without them: among the workers that the
// attempt has, and those without ranks that no other run has got meanwhile, but not to those that leave, if the others have room. All that
// had ranks are told to release them; for the workers the next assignment is another attempt.
func TestDroppedShadows(t *testing.T) {
	p := smallPlan(t, 4, fmt.Sprintf("cluster.shadow=%q", plan.ShadowAuto))
	need, err := p.RankBytes(plan.Shadows{})
	if err != nil {
		t.Fatal(err)
	}
	var all int64
	for _, bytes := range need {
		all += bytes
	}
	for _, c := range []struct {
		name, want string
		meanwhile  func(h *hosts) // w2 got no ranks
		uses       bool           // the attempt has w2
	}{
		{"a third worker is free", "[0] [1 2] [3]", func(*hosts) {}, true},
		{"another run has it", "[0 1] [2 3] []", func(h *hosts) { h.worker("w2").attempt = &attempt{} }, false},
		{"it leaves", "[0 1] [2 3] []", func(h *hosts) { h.worker("w2").leaving = true }, false},
		{"one with ranks leaves", "[0 1] [] [2 3]", func(h *hosts) { h.worker("w1").leaving = true }, true},
		{"one with ranks leaves, and the other has no room for all", "[0 1] [2 3] []", func(h *hosts) {
			h.worker("w0").Offer.MemoryBytes, h.worker("w1").leaving, h.worker("w2").leaving = all-1, true, true
		}, false},
	} {
		a, h := placed(t, p, 3)
		a.shares[0].ranks, a.shares[1].ranks, a.shares[2].ranks = []int{0, 1, 2}, []int{3}, nil // by the room for shadows
		ranks := func() string { return fmt.Sprint(a.shares[0].ranks, " ", a.shares[1].ranks, " ", a.shares[2].ranks) }
		a.freeIdle()
		c.meanwhile(h)
		was, told := a.id, h.listen(t)
		if err := a.dropShadows(a.as, errors.New("there is no room")); err != nil || ranks() != c.want {
			t.Errorf("%s: without shadows the workers have ranks %s, want %s; %v", c.name, ranks(), c.want, err)
		}
		if !strings.Contains(a.apart, "no shadows: there is no room") || strings.Contains(a.apart, "w1 got no ranks") {
			t.Errorf("%s: the run says %q", c.name, a.apart)
		}
		for i, w := range []*workerState{h.worker("w0"), h.worker("w1"), h.worker("w2")} {
			if uses := w.attempt == a; uses != (len(a.shares[i].ranks) > 0) || i == 2 && uses != c.uses {
				t.Errorf("%s: the attempt has worker %s: %t, with ranks %d", c.name, w.Name, uses, a.shares[i].ranks)
			}
			var want []uuid.UUID
			if i < 2 {
				want = append(want, was)
			}
			if got := told.released(w.Address); !slices.Equal(got, want) || a.id == was {
				t.Errorf("%s: worker %s releases attempts %v, want %v, and not %v", c.name, w.Name, got, want, a.id)
			}
			a.answer(w.ID, &wire.Control{Kind: &wire.Control_Released{Released: &wire.Released{Attempt: was[:]}}})
			if len(a.shares[i].ranks) > 0 && w.attempt != a {
				t.Errorf("%s: worker %s is free when it has released the first attempt", c.name, w.Name)
			}
		}
		a.Release()
		for i, s := range a.shares {
			if got := told.released(s.Address); !slices.Contains(got, a.id) {
				t.Errorf("%s: worker %d is not released: %v", c.name, i, got)
			}
		}
	}
}

// TestAssignedAgain: after a worker has refused its ranks with shadows, all get them again as another attempt. A message of the first
// attempt that is sent again later is still one of the first attempt.
func TestAssignedAgain(t *testing.T) {
	a, h := placed(t, smallPlan(t, 2, fmt.Sprintf("cluster.shadow=%q", plan.ShadowAuto), "batch.sequences=4096",
		"batch.microbatch=64"), 2)
	if !a.shadows.Any() {
		t.Fatalf("there are no shadows: %s", a.shadows.Why)
	}
	for i, s := range a.shares { // on one host, so that no link is measured
		s.Address = fmt.Sprintf("10.0.0.1:%d", i+1)
		h.worker(s.Name).Address = s.Address
	}
	a.as.Run = uuid.New()
	was, told := a.id, h.listen(t)
	told.on = func(address string, c *wire.Control) {
		m := c.GetAssign()
		first := m != nil && string(m.GetAttempt()) == string(was[:])
		if m == nil || first && address != h.worker("w0").Address { // the other one is slow
			return
		}
		answer := &wire.Assigned{Attempt: slices.Clone(m.GetAttempt())}
		if first {
			answer.Error, answer.Crowded = "no room", true
		}
		for _, w := range h.workers {
			if w.Address == address {
				a.answer(w.ID, &wire.Control{Kind: &wire.Control_Assigned{Assigned: answer}})
			}
		}
	}
	if _, err := a.Assign(t.Context(), a.as); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"w0", "w1"} {
		var got []string
		for _, c := range told.at[h.worker(name).Address] {
			for kind, id := range map[string][]byte{"assign": c.GetAssign().GetAttempt(), "release": c.GetRelease().GetAttempt()} {
				if id != nil {
					got = append(got, fmt.Sprint(kind, " ", uuid.UUID(id)))
				}
			}
		}
		want := []string{fmt.Sprint("assign ", was), fmt.Sprint("release ", was), fmt.Sprint("assign ", a.id)}
		if !slices.Equal(got, want) || a.id == was {
			t.Errorf("worker %s is told %q, want %q", name, got, want)
		}
	}
}
