package stages

import (
	"slices"

	"github.com/troupe-ml/troupe/tensorops"
)

// Under ZeRO the ranks with the same experts (ExpertParallel.Copies) share what the replicas share of all else. Their gradients are
// kept for each source, and the sums go over all sources of all groups, so the parts travel by an exchange and are added here.

// sumOwnParts records the sums of this rank's part of the gradients of divided parameters, in the order of sumExperts. The other parts
// do not change.
func (s *Stage) sumOwnParts(l *tensorops.List, params []*localParam) {
	group, sources := s.opts.Experts.Copies, s.opts.Experts.size()
	copies := group.Size()
	buckets, _ := s.buckets(params, bucketLen/(copies*sources))
	for _, pieces := range buckets {
		n := lenOf(pieces)
		parts, all := l.Alloc(tensorops.Float32, sources*copies, n), l.Alloc(tensorops.Float32, copies, n)
		if l.Err() != nil {
			return
		}
		if slices.ContainsFunc(pieces, func(p piece) bool { return !s.partition(p.h.param).even() }) {
			l.Fill(all, 0) // some parts are shorter
		}
		for i := range sources {
			for rank := range copies {
				row := all.RowRange(rank, rank+1)
				s.eachPart(pieces, rank, func(h *localParam, from, to, at int) {
					l.Copy(within(row, at, at+to-from), within(h.bySource[i], from, to))
				})
			}
			l.AllToAll(parts.RowRange(i*copies, (i+1)*copies), all, group)
		}
		l.Free(all)
		sum := s.addSources(l, parts, copies)
		s.eachPart(pieces, group.Rank(), func(h *localParam, from, to, at int) {
			first, _ := s.ownPart(h.param)
			l.Copy(within(s.ownGrad(h), from-first, to-first), within(sum, at, at+to-from))
		})
		l.Free(parts)
	}
}

// addSources adds the rows of parts, one for each source and, of a source, one for each copy: first all sources of the first group, then
// those of the next. The sum is in the first row.
func (s *Stage) addSources(l *tensorops.List, parts tensorops.Tensor, copies int) (sum tensorops.Tensor) {
	sum = parts.RowRange(0, 1)
	for c := range copies {
		for i := range s.opts.Experts.size() {
			if k := i*copies + c; k > 0 {
				l.Add(sum, sum, parts.RowRange(k, k+1))
			}
		}
	}
	return sum
}

// openSources allocates the gradients of a divided parameter, of which ranks keep parts.
func (s *Stage) openSources(l *tensorops.List, h *localParam) {
	for range s.opts.Experts.size() {
		t := l.Alloc(tensorops.Float32, h.param.Shape...)
		if l.Err() != nil {
			break
		}
		l.Fill(t, 0)
		h.bySource = append(h.bySource, t)
	}
	if len(h.bySource) > 0 {
		h.g[h.place()] = h.bySource[0]
	}
}

// closeSources frees them.
func (s *Stage) closeSources(l *tensorops.List, h *localParam) {
	for _, t := range h.bySource {
		l.Free(t)
	}
	h.bySource, h.g[h.place()] = h.bySource[:0], tensorops.Tensor{}
}
