package stages

import "github.com/troupe-ml/troupe/tensorops"

// A gradient exists from the first layer that adds to it until the update. In a step of many
// microbatches that is most of the step. In a step of one microbatch, activations are freed as
// gradients are created. With Options.BriefGrads both share the same memory, so that such a step
// takes little more than weights, gradients and the optimizer state.

// leastBrief is the smallest number of elements of a parameter with a brief gradient.
const leastBrief = 16 << 10

// brief reports whether a parameter's gradient is brief.
func (s *Stage) brief(h *localParam) bool {
	h.brief = s.opts.BriefGrads && !h.shared && !s.copies() && h.param.Len() >= leastBrief
	return h.brief
}

// openBrief allocates a brief gradient, filled with zeros, if it does not exist.
func (s *Stage) openBrief(l *tensorops.List, h *localParam) {
	if place := h.place(); h.brief && !h.g[place].Valid() {
		h.g[place] = s.allocGrad(l, h)
	}
}

// closeBrief frees a brief gradient, and reports whether it is brief.
func (s *Stage) closeBrief(l *tensorops.List, h *localParam) bool {
	if place := h.place(); h.brief && h.g[place].Valid() {
		l.Free(h.g[place])
		h.g[place] = tensorops.Tensor{}
	}
	return h.brief
}
