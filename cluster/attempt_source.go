package cluster

import (
	"errors"
	"slices"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/internal/wire"
)

// A worker that leaves keeps its stages until the others have loaded its ranks' state. If the processes that have that state fail before,
// it computes its ranks again in the next attempt, and leaves that one.

// source is such a worker, with the attempt that it left.
type source struct {
	*share
	of *attempt
}

// sources returns the workers that have left the attempt, or the one before if this one had not loaded all state.
func (a *attempt) sources() (all []source) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.shares {
		if s.leaves() && !s.freed {
			all = append(all, source{s, a})
		}
	}
	if a.renewal != nil {
		all = append(all, a.renewal.left...)
	}
	return all
}

// there reports whether the worker still has its stages, as far as is known: it is a member, and has not said that it released them. The
// coordinator's mu is held.
func (s source) there() bool {
	w := s.of.c.workers[s.ID]
	return w != nil && w.attempt == s.of && !s.of.hasFailed(s.ID)
}

// remain lets workers that leave compute their ranks in the attempt b, if no other process has all state of the lost ranks. Otherwise b
// begins without them, and has them as sources. It returns the workers that have failed with the ranks that others have to compute, and
// those that were to get ranks of a worker that leaves, and have nothing of them yet. c.mu is held.
func (a *attempt) remain(b *attempt, sources []source, failed []*share) (_, idle []*share) {
	r := b.renewal
	for _, s := range sources {
		switch lost := func(rank int) bool { return slices.Contains(r.lost, rank) }; {
		case s.there() && slices.ContainsFunc(s.ranks, lost):
			r.left = append(r.left, s)
		case s.of != a:
			r.dropped = append(r.dropped, s)
		}
	}
	if len(r.left) == 0 || a.as.Plan.Keeps(r.lost, r.shadows) == nil {
		return failed, nil
	}
	for _, s := range r.left {
		has := func(rank int) bool { return slices.Contains(s.ranks, rank) }
		r.lost = slices.DeleteFunc(r.lost, has)
		for _, other := range slices.Concat(failed, b.shares) {
			other.ranks = slices.DeleteFunc(slices.Clone(other.ranks), has)
		}
		b.shares = append(b.shares, &share{Member: s.Member, ranks: slices.Clone(s.ranks), kept: s.of.id})
	}
	r.left = nil
	none := func(s *share) bool { return len(s.ranks) == 0 }
	for _, s := range b.shares {
		if none(s) {
			idle = append(idle, s)
		}
	}
	b.shares = slices.DeleteFunc(b.shares, none)
	return slices.DeleteFunc(failed, none), idle
}

// dropIdle lets the attempt b free those of some workers that it has given no ranks.
func (a *attempt) dropIdle(b *attempt, idle []*share) {
	for _, s := range idle {
		if b.shareOf(s.ID) == nil {
			b.renewal.dropped = append(b.renewal.dropped, source{a.shareOf(s.ID), a})
		}
	}
}

// loaded frees the sources: all ranks have their state.
func (a *attempt) loaded() { a.drop(true, &wire.Release{}) }

// drop frees the workers of earlier attempts that this one does not need, with or without its sources.
func (a *attempt) drop(sources bool, m *wire.Release) {
	if a.renewal == nil {
		return
	}
	a.mu.Lock()
	all := a.renewal.dropped
	a.renewal.dropped = nil
	if sources {
		all = slices.Concat(all, a.renewal.left)
		a.renewal.left = nil
	}
	a.mu.Unlock()
	for _, s := range all {
		s.of.frees(s.share)
		a.c.release(s.share, &wire.Release{Attempt: s.of.id[:], Run: m.GetRun(), SavedStep: m.SavedStep})
	}
}

// frees notes that a worker is told to free its ranks.
func (a *attempt) frees(s *share) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s.freed = true
}

// leftRanks returns the ranks whose state workers that leave still have.
func (a *attempt) leftRanks() (ranks []int) {
	if a.renewal == nil {
		return nil
	}
	a.c.mu.Lock()
	defer a.c.mu.Unlock()
	a.mu.Lock()
	left := slices.Clone(a.renewal.left)
	a.mu.Unlock()
	for _, s := range left {
		if s.there() {
			ranks = append(ranks, s.ranks...)
		}
	}
	return ranks
}

// computes returns the ranks that a worker of the attempt computes. If another attempt continues this one, its workers are there; one that
// is still here has failed, or only keeps the state of its ranks. c.mu is held.
func (a *attempt) computes(worker uuid.UUID) []int {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.shareOf(worker)
	if s == nil || s.freed || a.renewed {
		return nil
	}
	return slices.Clone(s.ranks)
}

// keeps reports whether a worker that has left keeps the state of its ranks, for the attempt that continues this one. c.mu is held.
func (a *attempt) keeps(worker uuid.UUID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.shareOf(worker)
	return s != nil && a.renewed && s.leaves() && !s.freed
}

// leaves reports whether the attempt has lost the worker because it leaves, and it has not failed since. The attempt's mu is held.
func (s *share) leaves() bool { return s.lost && errors.Is(s.why, errLeaves) }
