package stages

import "github.com/troupe-ml/troupe/tensorops"

// A gradient exists from the first layer that adds to it until the update. For most of a step of many microbatches
// that is all the time. In a step of one, activations go as gradients come: with Options.BriefGrads one
// memory has room for both, so that such a step takes little more than weights, gradients and the optimizer's state.

// leastBrief is how many elements a parameter has at least whose gradient is brief.
const leastBrief = 16 << 10

// brief decides whether a gradient is.
func (s *Stage) brief(h *localParam) bool {
	h.brief = s.opts.BriefGrads && !h.shared && !s.copies() && h.param.Len() >= leastBrief
	return h.brief
}

// openBrief makes a brief gradient, of zeros, where it is none.
func (s *Stage) openBrief(l *tensorops.List, h *localParam) {
	if place := h.place(); h.brief && !h.g[place].Valid() {
		h.g[place] = s.allocGrad(l, h)
	}
}

// closeBrief lets go of a brief gradient, and reports whether it is one.
func (s *Stage) closeBrief(l *tensorops.List, h *localParam) bool {
	if place := h.place(); h.brief && h.g[place].Valid() {
		l.Free(h.g[place])
		h.g[place] = tensorops.Tensor{}
	}
	return h.brief
}
