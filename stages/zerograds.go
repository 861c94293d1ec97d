package stages

import "github.com/troupe-ml/troupe/tensorops"

// ZeRO-2: the replicas also share the gradients. The sum over ranks is one of whole gradients, each
// of all of its rank's microbatches. So a gradient is whole from the first layer that adds to it
// until its layers have processed the step's last microbatch; from then on a rank keeps only its
// part. This saves memory unless whole gradients of all of a rank's chunks exist from the first
// backward to the last.

// splitGrad allocates this rank's part of a gradient if it keeps only that, and reports whether it
// does. Small gradients stay whole.
func (s *Stage) splitGrad(l *tensorops.List, h *localParam) bool {
	if !s.sharesGrad(h.param) {
		return false
	}
	h.splitsGrad, h.gradPart = true, l.Alloc(tensorops.Float32, s.partLen(h.param))
	return true
}

// sharesGrad reports whether ranks keep only parts of a gradient if layers complete it.
func (s *Stage) sharesGrad(p *Param) bool {
	return s.opts.Data.splitsGrads() && s.splits(p) && p.Len() >= ownCollective
}

// gradRoom provides a whole gradient while layers add to it: with ZeRO-2, and for brief gradients.
type gradRoom struct {
	noHook
	stage *Stage
}

func (g gradRoom) beforeWeightGrad(p *pass, i int) { g.stage.openGrads(p.List, p.chunk, i) }
func (g gradRoom) afterGradients(p *pass)          { g.stage.closeGrads(p.List) }

// openGrads allocates the whole gradients to which a layer is about to add.
func (s *Stage) openGrads(l *tensorops.List, c *chunk, i int) {
	for _, u := range c.layers[i].uses() {
		h := s.byParam[u.param.Index]
		if h.splitsGrad {
			s.openGrad(l, h)
		}
		s.openBrief(l, h)
	}
}

func (s *Stage) openGrad(l *tensorops.List, h *localParam) {
	place, x := h.place(), s.partition(h.param)
	if h.g[place].Valid() || l.Err() != nil {
		return
	}
	if s.divided(h.param) {
		s.openSources(l, h)
		return
	}
	if x.gaps() { // padGrad makes the padded form
		h.g[place] = l.Alloc(tensorops.Float32, h.param.Shape...)
		if l.Err() == nil {
			l.Fill(h.g[place], 0)
		}
		return
	}
	t := l.Alloc(tensorops.Float32, s.opts.Data.size(), x.each)
	if l.Err() != nil {
		return
	}
	l.Fill(t, 0)
	h.padded, h.g[place] = t, t.Part(0, h.param.Shape...)
}

// padGrad records the copy of a whole gradient to a row for each rank, and frees it, if it does not lie that way.
func (s *Stage) padGrad(l *tensorops.List, h *localParam) {
	x := s.partition(h.param)
	if !x.gaps() {
		return
	}
	t := l.Alloc(tensorops.Float32, s.opts.Data.size(), x.each)
	if l.Err() != nil {
		return
	}
	l.Fill(t, 0)
	x.eachSection(func(at, padded int) {
		l.Copy(within(t, padded, padded+x.section), within(h.g[h.place()], at, at+x.section))
	})
	free(l, &h.g[h.place()])
	h.padded = t
}

// reduceWhole starts the sum over the replicas of this rank's part of a whole gradient.
func (s *Stage) reduceWhole(l *tensorops.List, h *localParam) {
	s.openGrad(l, h) // if no layer has
	if l.Err() != nil {
		return
	}
	if s.divided(h.param) {
		s.sumOwnParts(l, []*localParam{h})
		s.closeSources(l, h)
		return
	}
	if s.padGrad(l, h); l.Err() != nil {
		return
	}
	each := h.gradPart.Len()
	s.beginCollective(l, tensorops.CollectiveArgs{What: tensorops.ReduceScatter, Dst: h.gradPart.View(1, each),
		Src: h.padded.View(s.opts.Data.size(), each), How: tensorops.Sum})
	s.flat.summing = append(s.flat.summing, h)
}

// closeGrads frees the whole gradients whose sums have been started, when the sums are complete.
func (s *Stage) closeGrads(l *tensorops.List) {
	f := &s.flat
	if len(f.summing) == 0 {
		return
	}
	l.Await()
	for _, h := range f.summing {
		l.Free(h.padded)
		h.padded, h.g[h.place()] = tensorops.Tensor{}, tensorops.Tensor{}
	}
	f.summing = f.summing[:0]
}

// dropGrad frees a whole gradient that was not summed yet, if ranks keep only parts of it.
func (s *Stage) dropGrad(l *tensorops.List, h *localParam) {
	switch g := &h.g[h.place()]; {
	case !h.splitsGrad:
	case len(h.bySource) > 0:
		s.closeSources(l, h)
	case h.padded.Valid():
		l.Free(h.padded)
		h.padded, *g = tensorops.Tensor{}, tensorops.Tensor{}
	default:
		free(l, g)
	}
}

// ownGrad returns this rank's part of a summed gradient.
func (s *Stage) ownGrad(h *localParam) tensorops.Tensor {
	from, to := s.ownPart(h.param)
	if h.splitsGrad {
		return within(h.gradPart, 0, to-from)
	}
	return within(h.g[h.place()], from, to)
}
