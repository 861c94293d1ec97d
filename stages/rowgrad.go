package stages

import "github.com/troupe-ml/troupe/tensorops"

// rowGrad is the gradient of an embedding whose weight has another use on the same rank, such as a
// tied head. It has rows only for the tokens of the step. The head's gradient has all rows, and a
// second gradient of that size would be almost entirely zeros. At the end of the step the rows are
// added to the head's gradient, which is bit-identical to adding two whole gradients.
type rowGrad struct {
	slots  map[int32]int32  // row of sum by token
	tokens []int32          // token by row of sum
	sum    tensorops.Tensor // one row for each distinct token that a step can have
}

// assign gives each token its row of the sum; new tokens get rows at the end.
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

// clear starts a new step.
func (r *rowGrad) clear(l *tensorops.List) {
	if n := len(r.tokens); n > 0 {
		l.Fill(r.sum.RowRange(0, n), 0)
	}
	clear(r.slots)
	r.tokens = r.tokens[:0]
}
