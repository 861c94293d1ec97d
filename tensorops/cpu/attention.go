package cpu

import (
	"math"

	"github.com/troupe-ml/troupe/tensorops/cpu/internal/attn"
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/gemm"
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/vec"
)

// attnShape reads the sizes of an attention whose queries are operand q.
func (x *exec) attnShape(q int) (s *attn.Shape, heads, group int) {
	op := x.op
	heads, group = op.I[3], op.I[3]/op.I[4]
	s = &x.shape
	*s = attn.Shape{Queries: op.I[1], Keys: op.I[2], Dim: op.T[q].Cols() / heads}
	s.Scale = float32(1 / math.Sqrt(float64(s.Dim)))
	if op.F[0] > 0 {
		s.Mask = x.attnMask(s.Queries, s.Keys)
	}
	return s, heads, group
}

// attnMask draws the factors of probabilities: element (head of a sequence,
// query, key) of the global batch.
func (x *exec) attnMask(queries, keys int) func(dst []float32, head, query, first int) {
	op := x.op
	d := vec.NewDropout(op.Key, op.U[0], op.F[0])
	return func(dst []float32, head, query, first int) {
		at := op.U[1] + (uint64(head)*uint64(queries)+uint64(query))*uint64(keys) + uint64(first)
		for i := range dst {
			dst[i] = 1
		}
		x.dev.kernels.vec.Drop(dst, dst, x.keep(d, at, len(dst)), nil, d.Scale)
	}
}

// head is one head's matrix of operand i: the t rows of sequence b, the d columns
// of head h.
func (x *exec) head(i, b, h, t, d int) gemm.Matrix {
	return matrixOf(x.op.T[i], false).At(b*t, h*d)
}

// attention takes a range of (sequence, head).
func attention(x *exec, lo, hi int) {
	s, heads, group := x.attnShape(1)
	lse := f32(x.op.T[4])
	for bh := lo; bh < hi; bh++ {
		b, h := bh/heads, bh%heads
		x.heads = append(x.heads[:0], attn.Head{Index: bh, Q: x.head(1, b, h, s.Queries, s.Dim), O: x.head(0, b, h, s.Queries, s.Dim), LSE: lse[bh*s.Queries:][:s.Queries]})
		x.keys = attn.Keys{K: x.head(2, b, h/group, s.Keys, s.Dim), V: x.head(3, b, h/group, s.Keys, s.Dim)}
		x.dev.kernels.attn.Forward(&x.attn, s, &x.heads[0], &x.keys)
	}
}

// attentionGrad takes a range of (sequence, key head): the query heads that
// share a key head add to its gradient in ascending order.
func attentionGrad(x *exec, lo, hi int) {
	s, heads, group := x.attnShape(4)
	lse, kvHeads := f32(x.op.T[8]), heads/group
	for bk := lo; bk < hi; bk++ {
		b, hk := bk/kvHeads, bk%kvHeads
		x.heads = x.heads[:0]
		for h := hk * group; h < (hk+1)*group; h++ {
			head := func(i int) gemm.Matrix { return x.head(i, b, h, s.Queries, s.Dim) }
			x.heads = append(x.heads, attn.Head{Index: b*heads + h, Q: head(4), O: head(7), DO: head(3), DQ: head(0), LSE: lse[(b*heads+h)*s.Queries:][:s.Queries]})
		}
		keys := func(i int) gemm.Matrix { return x.head(i, b, hk, s.Keys, s.Dim) }
		x.keys = attn.Keys{K: keys(5), V: keys(6), DK: keys(1), DV: keys(2)}
		x.dev.kernels.attn.Backward(&x.attn, s, x.heads, &x.keys)
	}
}
