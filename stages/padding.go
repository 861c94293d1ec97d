package stages

import "github.com/troupe-ml/troupe/tensorops"

// A vocabulary is as large as it happens to be, 50,257 say: rows of logits then begin anywhere, and sums
// over the vocabulary are of an odd length, which a GPU's tensor cores read piece by piece. So where
// products read a bfloat16 copy of the head's weight, that copy has rows of zeros behind its own, up to a
// multiple of headRows, its gradient has as many, and rows of logits are as long. The logits of those
// rows are 0 and so are their gradients: nothing but the products sees them.

// headRows is what the head's rows are filled up to a multiple of.
const headRows = 64

// copies reports whether linear layers' weights are there in bfloat16 as well.
func (s *Stage) copies() bool { return s.opts.Copies && s.opts.BF16 && !s.opts.Inference }

// padHead is how many rows the copy of a weight has, and its gradient: more than its own if it is the head's.
func (s *Stage) padHead(h *localParam) int {
	rows := h.param.Shape[0]
	if !s.copies() || s.opts.Pack || h.splitsWeight || !s.isHead(h.param) {
		return rows
	}
	return (rows + headRows - 1) / headRows * headRows
}

// isHead reports whether a weight is that of a head here.
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

// padded takes memory for a weight's rows and zeros behind them, and sets all of it to 0.
func padded(l *tensorops.List, of tensorops.DType, h *localParam, rows int) (all, own tensorops.Tensor) {
	all = l.Alloc(of, rows, h.param.Shape[1])
	l.Fill(all, 0)
	return all, all.RowRange(0, h.param.Shape[0])
}

// allocGrad takes memory for a whole gradient, of zeros.
func (s *Stage) allocGrad(l *tensorops.List, h *localParam) (g tensorops.Tensor) {
	if rows := s.padHead(h); rows > h.param.Shape[0] {
		h.gradPadded, g = padded(l, tensorops.Float32, h, rows)
		return g
	}
	g = l.Alloc(tensorops.Float32, h.param.Shape...)
	l.Fill(g, 0)
	return g
}

// allocCopy takes memory for a weight in bfloat16.
func (s *Stage) allocCopy(l *tensorops.List, h *localParam) (low tensorops.Tensor) {
	if rows := s.padHead(h); rows > h.param.Shape[0] {
		h.lowPadded, low = padded(l, tensorops.BFloat16, h, rows)
		return low
	}
	return l.Alloc(tensorops.BFloat16, h.param.Shape...)
}

// width is how long the rows of logits are.
func (h *head) width(c *pass) int {
	if of := c.stage.byParam[h.proj.w.param.Index].lowPadded; of.Valid() {
		return of.Rows()
	}
	return h.vocab
}
