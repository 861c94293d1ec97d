package cluster

import (
	"errors"
	"slices"

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
		if s.lost && errors.Is(s.why, errLeaves) && !s.freed {
			all = append(all, source{s, a})
		}
	}
	if a.renewal != nil {
		all = append(all, a.renewal.left...)
	}
	return all
}

// there reports whether the worker still has its stages, as far as is known. The coordinator's mu is held.
func (s source) there() bool {
	w := s.of.c.workers[s.ID]
	return w != nil && w.attempt == s.of
}

// remain lets workers that leave compute their ranks in the attempt b, if no other process has all state of the lost ranks. Otherwise b
// begins without them, and has them as sources. It returns the workers that have failed with the ranks that others have to compute. c.mu is
// held.
func (a *attempt) remain(b *attempt, sources []source, failed []*share) []*share {
	r := b.renewal
	for _, s := range sources {
		switch lost := func(rank int) bool { return slices.Contains(r.lost, rank) }; {
		case s.there() && slices.ContainsFunc(s.ranks, lost):
			r.left = append(r.left, s)
		case s.of != a:
			r.dropped = append(r.dropped, s)
		}
	}
	if len(r.left) == 0 || a.as.Plan.Keeps(r.lost, a.shadows) == nil {
		return failed
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
		if none(s) { // it was to get ranks of a worker that leaves, and has nothing of them yet
			r.dropped = append(r.dropped, source{s, a})
		}
	}
	b.shares = slices.DeleteFunc(b.shares, none)
	return slices.DeleteFunc(failed, none)
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
	a.c.mu.Lock()
	defer a.c.mu.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.renewal == nil {
		return nil
	}
	for _, s := range a.renewal.left {
		if s.there() {
			ranks = append(ranks, s.ranks...)
		}
	}
	return ranks
}

// computes returns the ranks that a worker has, and was not told to free.
func (a *attempt) computes(s *share) []int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s == nil || s.freed {
		return nil
	}
	return slices.Clone(s.ranks)
}
