package stages

import "github.com/troupe-ml/troupe/tensorops"

// ZeRO-2: the replicas share the gradients too. A sum over ranks is that of whole gradients, each of all of its
// rank's microbatches: so a gradient is whole from the first layer that adds to it until its layers have seen
// the step's last microbatch, and a rank keeps its part from then on. Memory is saved where that is not from the
// first backward to the last for all of a rank's chunks at once.

// splitGrad makes room for this rank's part of a gradient where it has no more of it, and reports whether it
// has not. Small ones stay whole.
func (s *Stage) splitGrad(l *tensorops.List, h *localParam) bool {
	if !s.opts.Data.splitsGrads() || h.param.Len() < ownCollective {
		return false
	}
	h.splitsGrad, h.gradPart = true, l.Alloc(tensorops.Float32, s.partLen(h.param))
	return true
}

// gradRoom has a whole gradient there while layers add to it: with ZeRO-2, and of brief gradients.
type gradRoom struct {
	noHook
	stage *Stage
}

func (g gradRoom) beforeWeightGrad(p *pass, i int) { g.stage.openGrads(p.List, p.chunk, i) }
func (g gradRoom) afterGradients(p *pass)          { g.stage.closeGrads(p.List) }

// openGrads makes room for the whole gradients that a layer is about to add to.
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
	if h.padded.Valid() || l.Err() != nil {
		return
	}
	t := l.Alloc(tensorops.Float32, s.opts.Data.size(), s.partLen(h.param))
	if l.Err() != nil {
		return
	}
	l.Fill(t, 0)
	h.padded, h.g[h.place()] = t, t.Part(0, h.param.Shape...)
}

// reduceWhole begins the sum over the replicas of this rank's part of a whole gradient.
func (s *Stage) reduceWhole(l *tensorops.List, h *localParam) {
	s.openGrad(l, h) // where no layer has
	if l.Err() != nil {
		return
	}
	each := h.gradPart.Len()
	s.beginCollective(l, tensorops.CollectiveArgs{What: tensorops.ReduceScatter, Dst: h.gradPart.View(1, each),
		Src: h.padded.View(s.opts.Data.size(), each), How: tensorops.Sum})
	s.flat.summing = append(s.flat.summing, h)
}

// closeGrads lets go of the whole gradients whose sums are begun, when they are there.
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

// ownGrad is this rank's part of a gradient, summed.
func (s *Stage) ownGrad(h *localParam) tensorops.Tensor {
	from, to := s.ownPart(h.param)
	if h.splitsGrad {
		return within(h.gradPart, 0, to-from)
	}
	return within(h.g[h.place()], from, to)
}
