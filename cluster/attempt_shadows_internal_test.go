package cluster

import (
	"fmt"
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
// attempt has, and those without ranks that no other run has got meanwhile.
func TestDroppedShadows(t *testing.T) {
	for _, c := range []struct {
		name, want string
		idle       func(w *workerState) // what has become of a worker that got no ranks
	}{
		{"it is free", "[0] [1 2] [3]", func(*workerState) {}},
		{"another run has it", "[0 1] [2 3] []", func(w *workerState) { w.attempt = &attempt{} }},
		{"it leaves", "[0 1] [2 3] []", func(w *workerState) { w.leaving = true }},
	} {
		p := smallPlan(t, 4, fmt.Sprintf("cluster.shadow=%q", plan.ShadowAuto))
		a, h := placed(t, p, 3)
		a.shares[0].ranks, a.shares[1].ranks, a.shares[2].ranks = []int{0, 1, 2}, []int{3}, nil // by the room for shadows
		ranks := func() string { return fmt.Sprint(a.shares[0].ranks, " ", a.shares[1].ranks, " ", a.shares[2].ranks) }
		a.freeIdle()
		c.idle(h.worker("w2"))
		if err := a.divideAgain(a.as); err != nil || ranks() != c.want {
			t.Errorf("%s: without shadows the workers have ranks %s, want %s; %v", c.name, ranks(), c.want, err)
		}
		if uses := h.worker("w2").attempt == a; uses != (len(a.shares[2].ranks) > 0) {
			t.Errorf("%s: the attempt has the third worker: %t, with ranks %d", c.name, uses, a.shares[2].ranks)
		}
	}
}
