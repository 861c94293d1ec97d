package cpu

import (
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/attn"
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/gemm"
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/vec"
)

// attnShape is the shape of an attention, or of its gradient, with a mask.
func (x *exec) attnShape(a tensorops.AttentionSizes, m tensorops.Mask) *attn.Shape {
	s := &x.shape
	*s = attn.Shape{Queries: a.Queries, Keys: a.Keys, Dim: a.Width, Window: a.Window, Offset: a.Offset(), Scale: float32(a.Factor()),
		Cap: float32(a.SoftCap)}
	if m.P > 0 {
		s.Mask = x.attnMask(m, a)
	}
	return s
}

// attnMask draws the factors of probabilities: element (head of a sequence,
// query, key) of the global batch.
func (x *exec) attnMask(m tensorops.Mask, a tensorops.AttentionSizes) func(dst []float32, head, query, first int) {
	d := vec.NewDropout(m.Key, m.Step, m.P)
	return func(dst []float32, head, query, first int) {
		at := m.First + a.MaskIndex(head, query, first)
		for i := range dst {
			dst[i] = 1
		}
		x.dev.kernels.vec.Drop(dst, dst, x.keep(d, at, len(dst)), nil, d.Scale)
	}
}

// attnKernel multiplies bfloat16 where the operation allows it and the path can.
func (x *exec) attnKernel(bf16 bool) *attn.Kernel {
	if k := x.dev.kernels.attnBF16; bf16 && k != nil {
		return k
	}
	return x.dev.kernels.attn
}

// headOf is one head's matrix of an operand: the rows of sequence b, of which each
// has that many, and the d columns of head h.
func headOf(t tensorops.Tensor, b, h, rows, d int) gemm.Matrix {
	return matrixOf(t, false).At(b*rows, h*d)
}

// attention takes a range of (sequence, head).
func attention(x *exec, lo, hi int) {
	a := x.op.Attention()
	s, group, lse, kernel := x.attnShape(a.AttentionSizes, a.Mask), a.Group(), f32(a.LSE), x.attnKernel(a.BF16)
	s.Onto = a.Onto
	starts := startsOf(a.Starts)
	for bh := lo; bh < hi; bh++ {
		b, h := bh/a.Heads, bh%a.Heads
		head := func(t tensorops.Tensor) gemm.Matrix { return headOf(t, b, h, s.Queries, s.Dim) }
		keys := func(t tensorops.Tensor) gemm.Matrix { return headOf(t, b, h/group, s.Keys, s.Dim) }
		x.heads = append(x.heads[:0], attn.Head{Index: bh, Q: head(a.Q), O: head(a.O), LSE: lse[bh*s.Queries:][:s.Queries]})
		x.keys = attn.Keys{K: keys(a.K), V: keys(a.V)}
		s.Starts = starts.of(b, s.Queries)
		kernel.Forward(&x.attn, s, &x.heads[0], &x.keys)
	}
}

// attentionGrad takes a range of (sequence, key head): the query heads that
// share a key head add to its gradient in ascending order.
func attentionGrad(x *exec, lo, hi int) {
	a := x.op.AttentionGrad()
	s, group, lse, kernel := x.attnShape(a.AttentionSizes, a.Mask), a.Group(), f32(a.LSE), x.attnKernel(a.BF16)
	starts := startsOf(a.Starts)
	for bk := lo; bk < hi; bk++ {
		b, hk := bk/a.KVHeads, bk%a.KVHeads
		x.heads = x.heads[:0]
		for h := hk * group; h < (hk+1)*group; h++ {
			head := func(t tensorops.Tensor) gemm.Matrix { return headOf(t, b, h, s.Queries, s.Dim) }
			x.heads = append(x.heads, attn.Head{Index: b*a.Heads + h, Q: head(a.Q), O: head(a.O), DO: head(a.DO), DQ: head(a.DQ),
				LSE: lse[(b*a.Heads+h)*s.Queries:][:s.Queries]})
		}
		keys := func(t tensorops.Tensor) gemm.Matrix { return headOf(t, b, hk, s.Keys, s.Dim) }
		x.keys = attn.Keys{K: keys(a.K), V: keys(a.V), DK: keys(a.DK), DV: keys(a.DV)}
		s.Starts = starts.of(b, s.Queries)
		kernel.Backward(&x.attn, s, x.heads, &x.keys)
	}
}
