package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/wire"
)

// renewal is how an attempt continues another one.
type renewal struct {
	of   uuid.UUID // the other attempt
	lost []int     // ranks whose workers have failed
}

// Renew makes an attempt of the workers that have kept their stages, and of free workers in the place of the others. It implements
// plan.Renewer.
func (a *attempt) Renew(ctx context.Context, wait time.Duration) (plan.Workers, error) {
	a.releaseLost()
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	began := time.Now()
	for {
		b, changed, err := a.renew()
		if b != nil {
			return b, nil
		}
		if !errors.Is(err, plan.ErrNoRoom) {
			return nil, err
		}
		select {
		case <-changed:
		case <-deadline.C:
			if left := wait - a.c.awake.Since(began); left > 0 { // the process was frozen meanwhile
				deadline.Reset(left)
				continue
			}
			return nil, err
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// releaseLost frees the workers that have given up their ranks but are still members.
func (a *attempt) releaseLost() {
	for _, s := range a.lostShares() {
		if len(s.ranks) > 0 {
			// A worker that has left needs no message.
			_ = a.c.mesh.Control(s.ID, &wire.Control{Kind: &wire.Control_Release{Release: &wire.Release{Attempt: a.id[:]}}})
		}
	}
}

func (a *attempt) lostShares() (lost []*share) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.shares {
		if s.lost {
			lost = append(lost, s)
		}
	}
	return lost
}

// renew makes the attempt, if there is a free worker for each one that has failed.
func (a *attempt) renew() (b *attempt, changed <-chan struct{}, err error) {
	c, lost := a.c, a.lostShares()
	c.mu.Lock()
	defer c.mu.Unlock()
	free := (&hosts{Coordinator: c}).free()
	b = &attempt{c: c, cfg: a.cfg, run: a.run, tellWaiting: a.tellWaiting, tried: a.tried, asked: make(map[uuid.UUID]bool), apart: a.apart,
		gone: make(chan struct{}), told: make(map[string]bool), memory: make(map[int]int64), renewal: &renewal{of: a.id}}
	var all []*workerState
	for _, s := range a.busy() {
		w := c.workers[s.ID]
		if !slices.Contains(lost, s) && w != nil && w.attempt == a {
			all = append(all, w)
			b.shares = append(b.shares, &share{Member: w.Member, ranks: s.ranks, devices: s.devices})
			continue
		}
		b.renewal.lost = append(b.renewal.lost, s.ranks...)
		i, err := a.replacement(s, free)
		if err != nil {
			return nil, c.changed, err
		}
		all = append(all, free[i])
		b.shares = append(b.shares, &share{Member: free[i].Member, ranks: s.ranks})
		free = slices.Delete(free, i, i+1)
	}
	for i, w := range all {
		for _, other := range all[:i] {
			if c.keptApart(w.ID, other.ID) {
				return nil, c.changed, fmt.Errorf("%w: workers %s and %s cannot reach each other", plan.ErrNoRoom, w.Name, other.Name)
			}
		}
	}
	if err := sameKernels(a.cfg, all); err != nil {
		return nil, c.changed, err
	}
	if b.id, err = uuid.NewV7(); err != nil {
		return nil, nil, err
	}
	c.generation++
	b.generation, b.answers, b.cuts = c.generation, make(chan answer, 2*len(all)), newCuts(c, all)
	for _, w := range all {
		w.attempt = b
	}
	a.ended = time.Now()
	return b, nil, nil
}

// replacement returns the free worker that gets the ranks of one that has failed: of the same name, else on the same host, else any
// that has the memory. c.mu is held.
func (a *attempt) replacement(lost *share, free []*workerState) (int, error) {
	need, err := a.as.Plan.RankBytes()
	if err != nil {
		return 0, err
	}
	var bytes int64
	for _, r := range lost.ranks {
		bytes += need[r]
	}
	named := len(a.cfg.Cluster.Place) > 0
	best, rank := -1, 0
	for i, w := range free {
		of := 1
		switch {
		case w.Name == lost.Name:
			of = 3
		case named || w.Offer.GetMemoryBytes()/int64(1+a.neighbours(w)) < bytes:
			continue
		case hostOf(w.Address) == lost.host():
			of = 2
		}
		if of > rank {
			best, rank = i, of
		}
	}
	if best < 0 {
		return 0, fmt.Errorf("%w: no free worker for %s %s of worker %s", plan.ErrNoRoom, word(len(lost.ranks)), words.Numbers(lost.ranks),
			lost.Name)
	}
	return best, nil
}

func word(ranks int) string {
	if ranks == 1 {
		return "rank"
	}
	return "ranks"
}

// neighbours counts the attempt's workers on the host of another worker, which share its memory.
func (a *attempt) neighbours(w *workerState) (n int) {
	for _, s := range a.busy() {
		if own := a.c.workers[s.ID]; own != nil && own.attempt == a && s.host() == hostOf(w.Address) {
			n++
		}
	}
	return n
}

// pack describes the renewal to a worker.
func (r *renewal) pack(as plan.Assignment, ranks []int) (*wire.Renewal, error) {
	t := as.Adopt
	m := &wire.Renewal{Attempt: r.of[:], Step: t.Step, Skip: t.Skip, Kept: t.Kept,
		Update: &wire.Update{Count: int64(t.Update.Count), Lr: t.Update.LR, GradScale: t.Update.GradScale}}
	for _, rank := range ranks {
		if !slices.Contains(r.lost, rank) {
			continue
		}
		holder, err := as.Plan.Holder(rank, r.lost)
		if err != nil {
			return nil, err
		}
		m.Copies = append(m.Copies, int32(holder))
	}
	return m, nil
}
