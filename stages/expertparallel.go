package stages

import (
	"fmt"
	"slices"

	"github.com/troupe-ml/troupe/tensorops"
)

// ExpertParallel describes the group of ranks that share the experts of their layers. Each rank has an equal part of the experts,
// whole or in a tensor group a part of each, and everything else as the ranks of DataParallel have it: the group consists of
// consecutive ranks of DataParallel's group. With Whole, these are the ranks of all tensor groups that have a rank in DataParallel's
// group. Each rank routes its own microbatch, or its positions of one, sends its tokens to the ranks of their experts and gets the
// results back (Lepikhin et al. 2020, arXiv 2006.16668; no token is dropped). All ranks record the same passes in the same order. With the
// zero value the stage has all experts.
//
// The size of the group changes no bit. A row of a product does not depend on the other rows. A token's experts are added in the
// order of their numbers. An expert keeps a gradient for each rank of the group: the product over the tokens that came from there.
// At the end of a step they are added in the order of the ranks, as DataParallel adds the gradients of replicas that have all
// experts. So the gradients of experts take as much memory as without a group, while the weights and the optimizer state
// take only a part.
type ExpertParallel struct {
	Group tensorops.Group
	// Copies has the ranks with the same experts, one of each group, in DataParallel's order; nil: there is one group.
	Copies tensorops.Group
	// Whole gives the ranks of a tensor group whole experts. Each rank routes a part of the positions of a microbatch: see expertrows.go.
	Whole bool
	// Alone says that no other rank has all weights of this one. Without Whole the sizes of the groups say it.
	Alone bool
	// Rows is the largest number of tokens that any rank has of a microbatch, with its padding.
	Rows int
	// Overlap lets the other pass of an overlapped pair, and a shared expert, compute while tokens travel: see ActTogether. It changes
	// no bit.
	Overlap bool
}

func (x ExpertParallel) size() int {
	if x.Group == nil {
		return 1
	}
	return x.Group.Size()
}

func (x ExpertParallel) rank() int {
	if x.Group == nil {
		return 0
	}
	return x.Group.Rank()
}

// CheckExperts checks that size ranks can share the experts of the model's layers. The error is ErrModel.
func (m *Model) CheckExperts(size int) error {
	switch n := m.Config.Experts.Count; {
	case size <= 1:
		return nil
	case n == 0:
		return fmt.Errorf("%w: %d ranks cannot share experts: the model has none", ErrModel, size)
	case n%size != 0:
		return fmt.Errorf("%w: %d ranks cannot share %d experts evenly", ErrModel, size, n)
	}
	return nil
}

// checkExpertGroups checks a stage's expert groups against its other groups.
func (o *Options) checkExpertGroups() error {
	x := o.Experts
	if x.size() == 1 && !o.wholeExperts() {
		return nil
	}
	all, ranks, copies := o.Data.size(), "with the same layers", 1
	if o.wholeExperts() {
		all, ranks = all*o.Tensor.size(), "of the tensor groups with the same layers"
	}
	if x.Copies != nil {
		copies = x.Copies.Size()
	}
	if x.size()*copies != all {
		return fmt.Errorf("%w: %d expert groups of %d ranks are not the %d ranks %s", ErrModel, copies, x.size(), all, ranks)
	}
	return nil
}

// cutExperts turns a parameter of all experts, which the first dimension counts, into that of this rank's.
func (m *Model) cutExperts(u use) use {
	p := u.param
	p.experts = true
	if x := m.expert; x.size() > 1 {
		n := p.Whole[0] / x.size()
		if m.tensor.size() > 1 && !x.Whole {
			cutExpertsOfPart(p, x.rank()*n, (x.rank()+1)*n)
			return u
		}
		p.Slice = Slice{Dim: 0, Sections: 1, From: x.rank() * n, To: (x.rank() + 1) * n}
		p.Shape = p.Slice.Shape(p.Whole)
	}
	return u
}

// divided reports whether the ranks with the same numbers of a parameter are those of ExpertParallel: an expert group has different parts
// of it, or a tensor group has whole experts.
func (s *Stage) divided(p *Param) bool {
	return p.experts && (s.opts.Experts.size() > 1 || s.opts.wholeExperts())
}

// copiesOf returns the ranks with the same numbers of a parameter, of which this is one; nil: there is no other.
func (s *Stage) copiesOf(p *Param) tensorops.Group { return s.copiesIn(s.divided(p)) }

// copiesIn is copiesOf for divided parameters, or for all others.
func (s *Stage) copiesIn(divided bool) tensorops.Group {
	if divided {
		return s.opts.Experts.Copies
	}
	return s.opts.Data.Group
}

// copyOf returns this rank's place among the ranks with the same numbers of a parameter, and how many there are.
func (s *Stage) copyOf(p *Param) (rank, size int) {
	if g := s.copiesOf(p); g != nil {
		return g.Rank(), g.Size()
	}
	return 0, 1
}

// expertGrads are the gradients of divided parameters: those of the tokens of each rank of the group, one after another in one
// piece of memory for each rank.
type expertGrads struct {
	of     []tensorops.Tensor // by rank; shape: flatShape
	n      int                // elements, with padding to a multiple of the copies
	params []*localParam
}

// layExperts allocates the gradients of divided parameters, except those that openSources allocates.
func (s *Stage) layExperts(l *tensorops.List) {
	x, f := s.opts.Experts, &s.expertGrads
	at := make([]int, len(s.local))
	copies := 1
	for i, h := range s.local {
		if at[i] = f.n; s.divided(h.param) && !h.param.Frozen && !h.splitsGrad {
			f.n += h.param.Len()
			f.params = append(f.params, h)
			_, copies = s.copyOf(h.param)
		}
	}
	if f.n == 0 {
		return
	}
	f.n = (f.n + copies - 1) / copies * copies
	for range x.size() {
		t := l.Alloc(tensorops.Float32, flatShape(f.n)...)
		l.Fill(t, 0)
		f.of = append(f.of, t)
	}
	for i, h := range s.local {
		if slices.Contains(f.params, h) {
			for _, t := range f.of {
				h.bySource = append(h.bySource, t.Part(at[i], h.param.Shape...))
			}
			h.g[h.place()] = h.bySource[0]
		}
	}
}

// sumExperts records the sums of the gradients of divided parameters: over the ranks of all groups, in the order of
// DataParallel's. The gradients of the other sources are cleared. Under ZeRO a rank sums only its part.
func (s *Stage) sumExperts(l *tensorops.List) {
	f, group := &s.expertGrads, s.opts.Experts.Copies
	if f.n == 0 {
		return
	}
	if s.splits(f.params[0].param) { // all of them, or none
		s.sumOwnParts(l, f.params)
		s.clearSources(l)
		return
	}
	copies, piece := 1, mostPiece
	if group != nil {
		copies = group.Size()
		piece = max(1, bucketLen/(copies*len(f.of))) * copies
	}
	for from := 0; from < f.n; from += piece {
		n := min(piece, f.n-from)
		if copies == 1 {
			sum := f.of[0].Part(from, n)
			for _, t := range f.of[1:] {
				l.Add(sum, sum, t.Part(from, n))
			}
			continue
		}
		// Each rank adds a part of the elements: first all sources of the first group, then those of the next.
		each := n / copies
		parts := l.Alloc(tensorops.Float32, len(f.of)*copies, each)
		for i, t := range f.of {
			l.AllToAll(parts.RowRange(i*copies, (i+1)*copies), t.Part(from, copies, each), group)
		}
		sum := s.addSources(l, parts, copies)
		l.AllGather(f.of[0].Part(from, copies, each), sum, 0, group)
		l.Free(parts)
	}
	s.clearSources(l)
}

// clearSources clears the gradients of divided parameters, except those that become the sum.
func (s *Stage) clearSources(l *tensorops.List) {
	for i, t := range s.expertGrads.of {
		if i > 0 {
			l.Fill(t, 0)
		}
	}
}
