package stages

import (
	"fmt"

	"github.com/troupe-ml/troupe/tensorops"
)

// Reset ends the step in progress as if it had never begun, at any point of it, also after a list that failed: it
// frees microbatches in flight, gathered weights and gradients from other ranks, clears all gradients and statistics
// of routers, and forgets which sums over the replicas were started. Weights and optimizer state do not change. So
// the step can be computed again with the same bits. A speculative update must be rolled back first. No collective
// may still be in progress, and all replicas of the stage must reset.
func (s *Stage) Reset(l *tensorops.List) {
	s.AbortMicrobatches(l)
	s.letGo(l)
	for _, h := range s.local {
		s.dropGrad(l, h)
		for i := range h.others {
			free(l, &h.others[i].Grad)
		}
		h.others = h.others[:0]
	}
	for _, t := range s.routed {
		t.clear(l)
	}
	s.flat.summing = s.flat.summing[:0]
	s.clearDone()
	s.ClearGrads(l)
	s.clearSources(l)
}

// RankGroups are the groups of a stage's rank; nil: it has no such group.
type RankGroups struct {
	Tensor, Context, Data tensorops.Group
	Experts, ExpertCopies tensorops.Group // ExpertParallel's
}

// SetGroups replaces the groups of the stage's rank, for the next step. Each must have the size and the rank of the one that it
// replaces.
func (s *Stage) SetGroups(groups RankGroups) error {
	o := &s.opts
	all := []struct {
		name string
		was  *tensorops.Group
		is   tensorops.Group
	}{{"tensor", &o.Tensor.Group, groups.Tensor}, {"context", &o.Context.Group, groups.Context}, {"data", &o.Data.Group, groups.Data},
		{"expert", &o.Experts.Group, groups.Experts}, {"expert-data", &o.Experts.Copies, groups.ExpertCopies}}
	for _, g := range all {
		if (*g.was == nil) != (g.is == nil) || g.is != nil && ((*g.was).Size() != g.is.Size() || (*g.was).Rank() != g.is.Rank()) {
			return fmt.Errorf("%w: the new %s group differs from the stage's in size or rank", ErrModel, g.name)
		}
	}
	for _, g := range all {
		*g.was = g.is
	}
	return nil
}
