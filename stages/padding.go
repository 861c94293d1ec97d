package stages

import "github.com/troupe-ml/troupe/tensorops"

// A vocabulary may have any size, for example 50,257. Then rows of logits start at any address, and
// sums over the vocabulary have an odd length, which a GPU's tensor cores read piece by piece. So
// if products read a bfloat16 copy of the head's weight, that copy has padding rows of zeros after
// its own rows, up to a multiple of headRows. Its gradient has as many rows, and rows of logits are
// as long. The logits of the padding rows and their gradients are 0. Only the products read them.

// headRows is the multiple to which the head's rows are padded.
const headRows = 64

// copies reports whether linear layers' weights also exist in bfloat16.
func (s *Stage) copies() bool { return s.opts.Copies && s.opts.BF16 && !s.opts.Inference }

// padHead returns the number of rows of a weight's copy and of its gradient: more than its own for
// the head's weight.
func (s *Stage) padHead(h *localParam) int {
	rows := h.param.Shape[0]
	if !s.copies() || s.opts.Pack || h.splitsWeight || !s.isHead(h.param) {
		return rows
	}
	return (rows + headRows - 1) / headRows * headRows
}

// isHead reports whether a weight is that of a head on this rank.
func (s *Stage) isHead(p *Param) bool {
	for _, c := range s.order {
		for _, l := range c.layers {
			if h, ok := l.(*head); ok && h.proj.w.param == p {
				return true
			}
		}
	}
	return false
}

// padded allocates memory for a weight's rows and padding rows, filled with zeros.
func padded(l *tensorops.List, of tensorops.DType, h *localParam, rows int) (all, own tensorops.Tensor) {
	all = l.Alloc(of, rows, h.param.Shape[1])
	l.Fill(all, 0)
	return all, all.RowRange(0, h.param.Shape[0])
}

// allocGrad allocates a whole gradient, filled with zeros.
func (s *Stage) allocGrad(l *tensorops.List, h *localParam) (g tensorops.Tensor) {
	if rows := s.padHead(h); rows > h.param.Shape[0] {
		h.gradPadded, g = padded(l, tensorops.Float32, h, rows)
		return g
	}
	g = l.Alloc(tensorops.Float32, h.param.Shape...)
	l.Fill(g, 0)
	return g
}

// allocCopy allocates a weight's bfloat16 copy.
func (s *Stage) allocCopy(l *tensorops.List, h *localParam) (low tensorops.Tensor) {
	if rows := s.padHead(h); rows > h.param.Shape[0] {
		h.lowPadded, low = padded(l, tensorops.BFloat16, h, rows)
		return low
	}
	return l.Alloc(tensorops.BFloat16, h.param.Shape...)
}

// width returns the length of the rows of logits.
func (h *head) width(c *pass) int {
	if of := c.stage.byParam[h.proj.w.param.Index].lowPadded; of.Valid() {
		return of.Rows()
	}
	return h.vocab
}
