package cluster

import (
	"log/slog"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/wire"
)

// TestPrepare: what a worker has prepared goes to the assignment that it was prepared for. Anything else drops it.
func TestPrepare(t *testing.T) {
	p := smallPlan(t, 4, `cluster.shadow="on"`, `device.kind="cpu"`)
	order, err := orderOf(plan.Assignment{Config: p.Config(), Plan: p, Run: uuid.New()})
	if err != nil {
		t.Fatal(err)
	}
	attempt := uuid.New()
	asked := func(ranks ...int) *wire.Assign {
		m := order(ranks, plan.Shadows{At: []int{1, 2, 3, 0}})
		m.Attempt = attempt[:]
		return m
	}
	assigned := func(ranks ...int) *wire.Assign {
		m := asked(ranks...)
		of := uuid.New()
		m.Attempt, m.Renewal = of[:], &wire.Renewal{Attempt: attempt[:], Copies: slices.Repeat([]int32{0}, len(ranks))}
		return m
	}
	rescued, other, fresh, kept := assigned(2), assigned(2), assigned(2), assigned(2, 3)
	rescued.Renewal.Rescue, other.Renewal.Attempt, fresh.Renewal, kept.Renewal.Copies[1] = true, rescued.Attempt, nil, -1
	for name, c := range map[string]struct {
		ranks []int
		then  func(w *membership)
		m     *wire.Assign
		want  bool
	}{
		"its assignment":       {[]int{2}, nil, assigned(2), true},
		"two ranks":            {[]int{2, 3}, nil, assigned(2, 3), true},
		"other ranks":          {[]int{2}, nil, assigned(3), false},
		"another attempt":      {[]int{2}, nil, other, false},
		"no renewal":           {[]int{2}, nil, fresh, false},
		"a rescue":             {[]int{2}, nil, rescued, false},
		"a rank that was kept": {[]int{2, 3}, nil, kept, false},
		"an impossible rank":   {[]int{7}, nil, assigned(7), false},
		"a release":            {[]int{2}, func(w *membership) { w.released(&wire.Release{Attempt: attempt[:]}) }, assigned(2), false},
		"another release": {[]int{2}, func(w *membership) { w.released(&wire.Release{Attempt: rescued.Attempt}) }, assigned(2),
			true},
		"another preparation": {[]int{2}, func(w *membership) { w.prepare(2, asked(3)) }, assigned(2), false},
		"a worker with ranks": {[]int{2}, func(w *membership) {
			w.parts[uuid.New()] = nil
			w.prepare(2, asked(2))
		}, assigned(2), false},
	} {
		t.Run(name, func(t *testing.T) {
			w := &membership{worker: &worker{log: slog.New(slog.DiscardHandler)}, parts: make(map[uuid.UUID]*part),
				gaveUp: make(map[uuid.UUID]string)}
			held := func(f func()) {
				w.mu.Lock()
				defer w.mu.Unlock()
				f()
			}
			held(func() { w.prepare(1, asked(c.ranks...)) })
			if c.then != nil {
				held(func() { c.then(w) })
			}
			k := w.takePrepared(c.m)
			if (k != nil) != c.want {
				t.Errorf("it was taken: %t, want %t", k != nil, c.want)
			}
			if k != nil {
				if own, shadowed := k.without(c.ranks, []int{1, 2, 3, 0}); len(k.stages) != len(c.ranks) || len(own)+len(shadowed) > 0 {
					t.Errorf("%d stages; ranks %d and the shadows of %d are not prepared", len(k.stages), own, shadowed)
				}
				if k.planOf(c.m) == nil || k.planOf(&wire.Assign{}) != nil {
					t.Error("the plan was not kept for the assignment, or for another one")
				}
				k.close("the test ends")
			}
			if w.running.Wait(); w.prepares != nil {
				t.Error("something is still prepared")
			}
		})
	}
}

// TestPrepareEnds: a preparation that is not wanted any more ends with an error.
func TestPrepareEnds(t *testing.T) {
	p := smallPlan(t, 2, `device.kind="cpu"`)
	set, err := device.OpenSetAt(p.Config(), map[int]int{0: 0, 1: 0})
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	asked := 0
	if all, err := p.Prepare([]int{0, 1}, nil, set.OfRanks(), func() bool { asked++; return true }); err == nil || asked == 0 {
		t.Errorf("%d stages, %v; it has asked %d times", len(all), err, asked)
	}
	if left := set.Memory("cpu"); left.InUse != 0 {
		t.Errorf("%+v: memory is still in use", left)
	}
}
