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
	if !s.opts.Data.splitsGrads() || h.param.Len() < ownCollective {
		return false
	}
	h.splitsGrad, h.gradPart = true, l.Alloc(tensorops.Float32, s.partLen(h.param))
	return true
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

// reduceWhole starts the sum over the replicas of this rank's part of a whole gradient.
func (s *Stage) reduceWhole(l *tensorops.List, h *localParam) {
	s.openGrad(l, h) // if no layer has
	if l.Err() != nil {
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

// ownGrad returns this rank's part of a summed gradient.
func (s *Stage) ownGrad(h *localParam) tensorops.Tensor {
	from, to := s.ownPart(h.param)
	if h.splitsGrad {
		return within(h.gradPart, 0, to-from)
	}
	return within(h.g[h.place()], from, to)
}
