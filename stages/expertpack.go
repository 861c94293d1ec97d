package stages

import "github.com/troupe-ml/troupe/tensorops"

// The matrices of experts are packed as those of linear layers are, all of a parameter together.

// eachPackedExperts calls f for each form of the matrices of experts that may be packed, with its number of elements.
func (s *Stage) eachPackedExperts(f func(h *localParam, form, n int)) {
	for _, h := range s.local {
		if p := h.param; p.experts && len(p.Whole) == 3 && !p.Adapter && !p.Frozen && !h.splitsWeight {
			for form := range h.packed {
				f(h, form, p.Shape[0]*tensorops.PackedLen(p.Shape[1], p.Shape[2]))
			}
		}
	}
}

// packExperts records the packing of the matrices of experts. They are stored by outputs.
func (s *Stage) packExperts(l *tensorops.List) {
	s.eachPackedExperts(func(h *localParam, form, _ int) {
		if t := h.packed[form]; t.Valid() {
			l.PackExperts(t, h.w, h.param.Shape[0], form == forForward, s.opts.BF16)
		}
	})
}

// packedExperts returns a packed form of the matrices of experts; invalid: there is none.
func (c *pass) packedExperts(w use, form int) tensorops.Tensor {
	return c.stage.byParam[w.param.Index].packed[form]
}
