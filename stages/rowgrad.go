package stages

import "github.com/troupe-ml/troupe/tensorops"

// rowGrad is the gradient of an embedding whose weight has another use on the same
// rank, such as a tied head: of the rows alone that the step's tokens name. The
// head's gradient has all rows; a second one of that size would be nearly all zeros.
// At the end of the step the rows are added to the head's, which gives the bits of
// adding two whole gradients.
type rowGrad struct {
	slots  map[int32]int32  // row of sum by token
	tokens []int32          // token by row of sum
	sum    tensorops.Tensor // a row for each token that a step can name
}

// assign gives each token its row of the sum, new ones at the end.
func (r *rowGrad) assign(to, tokens []int32) []int32 {
	for _, t := range tokens {
		slot, ok := r.slots[t]
		if !ok {
			slot = int32(len(r.tokens))
			r.slots[t] = slot
			r.tokens = append(r.tokens, t)
		}
		to = append(to, slot)
	}
	return to
}

// addTo adds the rows to a whole gradient.
func (r *rowGrad) addTo(l *tensorops.List, grad tensorops.Tensor) {
	if n := len(r.tokens); n > 0 {
		ids := l.Alloc(tensorops.Int32, n)
		l.Upload(ids, tensorops.HostBytes(r.tokens))
		l.EmbedGrad(grad, r.sum.RowRange(0, n), ids)
		l.Free(ids)
	}
}

// clear begins a new step.
func (r *rowGrad) clear(l *tensorops.List) {
	if n := len(r.tokens); n > 0 {
		l.Fill(r.sum.RowRange(0, n), 0)
	}
	clear(r.slots)
	r.tokens = r.tokens[:0]
}
