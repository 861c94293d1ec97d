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
	of      uuid.UUID    // the other attempt
	lost    []int        // ranks that get their state from others: their workers have failed, or have none of it
	shadows plan.Shadows // of the other attempt: where lost ranks get their state
	rescue  bool         // it only writes a checkpoint, and the ranks that are lost save from their shadows or replicas
	saved   []*share     // of a rescue: the workers whose ranks others save
	left    []source     // workers that have left, until all ranks have their state; the attempt's mu
	dropped []source     // workers that have to free what they have of earlier attempts
}

// Renew makes an attempt of the workers that have kept their stages, and of free workers in the place of the others. If none comes in time,
// workers that have kept their stages get the other ranks as well, if they have the memory, or else only save them. It implements
// plan.Renewer.
func (a *attempt) Renew(ctx context.Context, wait time.Duration) (_ plan.Workers, rescue bool, err error) {
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	began := time.Now()
	for {
		a.releaseLost() // also those that left meanwhile
		b, changed, err := a.renew(a.replacement)
		if b != nil {
			b.drop(false, &wire.Release{})
			return b, false, nil
		}
		if !errors.Is(err, plan.ErrNoRoom) {
			return nil, false, err
		}
		select {
		case <-changed:
		case <-deadline.C:
			if left := wait - a.c.awake.Since(began); left > 0 { // the process was frozen meanwhile
				deadline.Reset(left)
				continue
			}
			b, _, among := a.renew(nil)
			if b != nil {
				b.drop(false, &wire.Release{})
				return b, b.renewal.rescue, nil
			}
			return nil, false, fmt.Errorf("%w; %w", err, among)
		case <-ctx.Done():
			return nil, false, context.Cause(ctx)
		}
	}
}

// releaseLost frees the workers that have given up their ranks but are still members. Those that leave are needed until others have the
// state of their ranks.
func (a *attempt) releaseLost() {
	for _, s := range a.lostShares() {
		if len(s.ranks) > 0 && !s.freed && a.hasFailed(s.ID) { // once: afterwards it may compute ranks of another run
			a.frees(s)
			a.c.release(s, &wire.Release{Attempt: a.id[:]})
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

// unloaded returns the ranks that were to get their state from others in this attempt, and had not all of it when it ended. Their workers
// have kept nothing of them.
func (a *attempt) unloaded() (ranks []int) {
	a.mu.Lock()
	r := a.actors
	a.mu.Unlock()
	if a.renewal == nil || r == nil {
		return nil
	}
	if c := r.Wait().Carry; c != nil {
		for _, rank := range a.renewal.lost {
			if slices.Contains(c.Unready(), rank) {
				ranks = append(ranks, rank)
			}
		}
	}
	return ranks
}

// renew makes the attempt, if replacement finds a free worker for each one that has failed. Without a replacement, the others get the
// ranks or, if they have no room, save them.
func (a *attempt) renew(replacement func(lost *share, free []*workerState) (int, error)) (b *attempt, changed <-chan struct{}, err error) {
	return a.renewWithout(a.unloaded(), replacement)
}

// renewWithout is renew. unloaded are ranks of workers that have kept nothing of them.
func (a *attempt) renewWithout(unloaded []int, replacement func(lost *share, free []*workerState) (int, error)) (b *attempt,
	changed <-chan struct{}, err error) {
	c, lost, sources := a.c, a.lostShares(), a.sources()
	c.mu.Lock()
	defer c.mu.Unlock()
	free := c.freeFor(a)
	b = &attempt{c: c, cfg: a.cfg, run: a.run, tellWaiting: a.tellWaiting, tried: a.tried, asked: make(map[uuid.UUID]bool), apart: a.apart,
		gone: make(chan struct{}), told: make(map[string]bool), memory: make(map[int]int64),
		renewal: &renewal{of: a.id, shadows: a.held()}, shadows: a.held()}
	var failed []*share
	if a.renewal != nil { // first, so that a worker that is back gets its own ranks
		for _, s := range a.renewal.saved {
			failed = append(failed, &share{Member: s.Member, ranks: s.ranks})
		}
	}
	for _, s := range a.busy() {
		w, ranks := c.workers[s.ID], a.without(s.ranks)
		if !slices.Contains(lost, s) && w != nil && w.attempt == a {
			b.shares = append(b.shares, &share{Member: w.Member, ranks: ranks, devices: s.devices})
			for _, rank := range ranks {
				if slices.Contains(unloaded, rank) {
					b.renewal.lost = append(b.renewal.lost, rank)
				}
			}
		} else if len(ranks) > 0 {
			failed = append(failed, &share{Member: s.Member, ranks: ranks})
		}
	}
	for _, s := range failed {
		b.renewal.lost = append(b.renewal.lost, s.ranks...)
	}
	failed, idle := a.remain(b, sources, failed)
	for _, s := range idle {
		if w := c.workers[s.ID]; !w.leaving {
			free = append(free, w)
		}
	}
	for _, s := range failed {
		if replacement == nil {
			continue
		}
		i, err := replacement(s, free)
		if err != nil {
			return nil, c.changed, err
		}
		b.shares = append(b.shares, &share{Member: free[i].Member, ranks: s.ranks})
		free = slices.Delete(free, i, i+1)
	}
	if replacement == nil {
		if err := a.shareOut(failed, b); err != nil {
			return nil, c.changed, err
		}
	}
	a.dropIdle(b, idle)
	var all []*workerState
	for _, s := range b.shares {
		all = append(all, c.workers[s.ID])
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
	a.ended, a.renewed = time.Now(), true
	a.unreserve()
	return b, nil, nil
}

// held returns where the shadows are that have the state of the ranks. An attempt that only saves state makes none, and leaves those of the
// attempt before where they are.
func (a *attempt) held() plan.Shadows {
	if a.renewal != nil && a.renewal.rescue {
		return a.renewal.shadows
	}
	return a.shadows
}

// without returns those of some ranks that their worker computes, and does not only save.
func (a *attempt) without(ranks []int) (own []int) {
	for _, rank := range ranks {
		if a.renewal == nil || !slices.ContainsFunc(a.renewal.saved, func(s *share) bool { return slices.Contains(s.ranks, rank) }) {
			own = append(own, rank)
		}
	}
	return own
}

// replacement returns the free worker that gets the ranks of one that has failed: the one that is reserved for them, else of the same name,
// else on the same host, else any that has the memory. c.mu is held.
func (a *attempt) replacement(lost *share, free []*workerState) (int, error) {
	need, err := a.as.Plan.RankBytes(a.held())
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
		of, has := 1, w.Offer.GetMemoryBytes()/int64(1+a.neighbours(w)) // 0: unknown
		switch {
		case named && w.Name != lost.Name || !named && has > 0 && has < bytes:
			continue
		case w.reserved == a && slices.Equal(w.due, lost.ranks): // it has prepared for them
			of = 4
		case w.Name == lost.Name:
			of = 3
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

// shareOut gives the ranks of workers that have failed to those of the next attempt. If they have no room, that attempt only saves them.
func (a *attempt) shareOut(failed []*share, b *attempt) error {
	before := make([][]int, len(b.shares))
	for i, s := range b.shares {
		before[i] = slices.Clone(s.ranks)
	}
	var full error
	for _, s := range failed {
		if full = a.shareRanks(s, b.shares); full != nil {
			break
		}
	}
	if full == nil {
		return nil
	}
	for i, s := range b.shares {
		s.ranks = before[i]
	}
	var savers []*share // of the ranks, in order
	for _, s := range failed {
		for _, rank := range s.ranks {
			from, err := a.as.Plan.Holder(rank, b.renewal.lost, b.renewal.shadows)
			if err != nil {
				return fmt.Errorf("%w; %w", full, err)
			}
			i := slices.IndexFunc(b.shares, func(of *share) bool { return slices.Contains(of.ranks, from) })
			if i < 0 {
				return full
			}
			savers = append(savers, b.shares[i])
		}
	}
	for _, s := range failed {
		for _, rank := range s.ranks {
			savers[0].take(rank)
			savers = savers[1:]
		}
	}
	b.renewal.rescue, b.renewal.saved, b.regroups = true, failed, true
	b.shadows = plan.Shadows{Why: "the attempt only saves its state"}
	return nil
}

// shareRanks gives the ranks of a worker that has failed to others that stay: each to the one with the fewest ranks that has the memory,
// and not its shadow, if there is another. c.mu is held.
func (a *attempt) shareRanks(lost *share, shares []*share) error {
	if len(a.cfg.Cluster.Place) > 0 {
		return fmt.Errorf("%w: cluster.place names worker %s for its ranks", plan.ErrNoRoom, lost.Name)
	}
	shadows := a.held()
	need, err := a.as.Plan.RankBytes(shadows)
	if err != nil {
		return err
	}
	onHost := make(map[string]int64)
	for _, s := range shares {
		onHost[s.host()]++
	}
	for _, rank := range lost.ranks {
		var best *share
		least := 0
		for _, s := range shares {
			if w := a.c.workers[s.ID]; w == nil || w.leaving {
				continue
			}
			bytes := need[rank]
			for _, own := range s.ranks {
				bytes += need[own]
			}
			if s.Offer.GetMemoryBytes()/onHost[s.host()] < bytes || a.cfg.StageOf(rank) == 0 && !a.onEdge(s) {
				continue
			}
			load := 2 * len(s.ranks)
			if slices.Contains(s.ranks, shadows.Of(rank)) {
				load++
			}
			if best == nil || load < least {
				best, least = s, load
			}
		}
		if best == nil {
			return fmt.Errorf("%w: no other worker has the memory for rank %d", plan.ErrNoRoom, rank)
		}
		best.take(rank)
	}
	return nil
}

// take gives a worker another rank. The ranks stay in order.
func (s *share) take(rank int) {
	s.ranks = append(s.ranks, rank)
	slices.Sort(s.ranks)
}

// neighbours counts the attempt's other workers on the host of a worker, which share its memory.
func (a *attempt) neighbours(w *workerState) (n int) {
	for _, s := range a.busy() {
		if own := a.c.workers[s.ID]; own != nil && own != w && own.attempt == a && s.host() == hostOf(w.Address) {
			n++
		}
	}
	return n
}

// pack describes the renewal to a worker.
func (r *renewal) pack(as plan.Assignment, s *share) (*wire.Renewal, error) {
	t, of, ranks := as.Adopt, r.keptBy(s), s.ranks
	m := &wire.Renewal{Attempt: of[:], Rescue: r.rescue, Step: t.Step, Skip: t.Skip, Kept: t.Kept,
		Update: &wire.Update{Count: int64(t.Update.Count), Lr: t.Update.LR, GradScale: t.Update.GradScale}}
	if !slices.ContainsFunc(ranks, func(rank int) bool { return slices.Contains(r.lost, rank) }) {
		return m, nil // it should have kept all
	}
	for _, rank := range ranks {
		from := -1
		if slices.Contains(r.lost, rank) {
			var err error
			if from, err = as.Plan.Holder(rank, r.lost, r.shadows); err != nil {
				return nil, err
			}
		}
		m.Copies = append(m.Copies, int32(from))
	}
	return m, nil
}

// keptBy returns the attempt of which a worker has kept its stages.
func (r *renewal) keptBy(s *share) uuid.UUID {
	if s.kept != uuid.Nil {
		return s.kept
	}
	return r.of
}
