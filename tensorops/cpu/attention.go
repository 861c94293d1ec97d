package cpu

import (
	"math"

	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/attn"
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/gemm"
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/vec"
)

// attnShape is the shape of an attention, or of its gradient, with a mask.
func (x *exec) attnShape(a tensorops.AttentionSizes, m tensorops.Mask) *attn.Shape {
	s := &x.shape
	*s = attn.Shape{Queries: a.Queries, Keys: a.Keys, Dim: a.Width}
	s.Scale = float32(1 / math.Sqrt(float64(s.Dim)))
	if m.P > 0 {
		s.Mask = x.attnMask(m, s.Queries, s.Keys)
	}
	return s
}

// attnMask draws the factors of probabilities: element (head of a sequence,
// query, key) of the global batch.
func (x *exec) attnMask(m tensorops.Mask, queries, keys int) func(dst []float32, head, query, first int) {
	d := vec.NewDropout(m.Key, m.Step, m.P)
	return func(dst []float32, head, query, first int) {
		at := m.First + (uint64(head)*uint64(queries)+uint64(query))*uint64(keys) + uint64(first)
		for i := range dst {
			dst[i] = 1
		}
		x.dev.kernels.vec.Drop(dst, dst, x.keep(d, at, len(dst)), nil, d.Scale)
	}
}

// headOf is one head's matrix of an operand: the rows of sequence b, of which each
// has that many, and the d columns of head h. Of bfloat16 it is a widened copy in a piece of
// memory of the core's own.
func (x *exec) headOf(t tensorops.Tensor, b, h, rows, d int) gemm.Matrix {
	m := matrixOf(t, false).At(b*rows, h*d)
	if m.Half == nil {
		return m
	}
	wide := x.headRoom(rows, d)
	for r := range rows {
		x.dev.kernels.vec.FromBF16(wide.Data[r*d:][:d], m.Half[r*m.Row:])
	}
	return wide
}

// resultOf is where a head's result goes: the operand's memory, or a piece of the core's own,
// which roundHead stores.
func (x *exec) resultOf(t tensorops.Tensor, b, h, rows, d int) gemm.Matrix {
	if t.DType() != tensorops.BFloat16 {
		return matrixOf(t, false).At(b*rows, h*d)
	}
	return x.headRoom(rows, d)
}

// headRoom is the next unused piece of the core's own memory.
func (x *exec) headRoom(rows, d int) gemm.Matrix {
	if x.usedHeads == len(x.wideHeads) {
		x.wideHeads = append(x.wideHeads, nil)
	}
	x.usedHeads++
	return gemm.Matrix{Data: scratch(&x.wideHeads[x.usedHeads-1], rows*d), Row: d, Col: 1}
}

// roundHead stores what resultOf has collected beside an operand.
func (x *exec) roundHead(t tensorops.Tensor, m gemm.Matrix, b, h, rows, d int) {
	if t.DType() != tensorops.BFloat16 {
		return
	}
	to := matrixOf(t, false).At(b*rows, h*d)
	for r := range rows {
		x.dev.kernels.vec.ToBF16(to.Half[r*to.Row:][:d], m.Data[r*d:])
	}
}

// attention takes a range of (sequence, head).
func attention(x *exec, lo, hi int) {
	a := x.op.Attention()
	s, group, lse := x.attnShape(a.AttentionSizes, a.Mask), a.Group(), f32(a.LSE)
	for bh := lo; bh < hi; bh++ {
		b, h := bh/a.Heads, bh%a.Heads
		x.usedHeads = 0
		x.heads = append(x.heads[:0], attn.Head{Index: bh, Q: x.headOf(a.Q, b, h, s.Queries, s.Dim), O: x.resultOf(a.O, b, h, s.Queries, s.Dim), LSE: lse[bh*s.Queries:][:s.Queries]})
		x.keys = attn.Keys{K: x.headOf(a.K, b, h/group, s.Keys, s.Dim), V: x.headOf(a.V, b, h/group, s.Keys, s.Dim)}
		x.dev.kernels.attn.Forward(&x.attn, s, &x.heads[0], &x.keys)
		x.roundHead(a.O, x.heads[0].O, b, h, s.Queries, s.Dim)
	}
}

// attentionGrad takes a range of (sequence, key head): the query heads that
// share a key head add to its gradient in ascending order.
func attentionGrad(x *exec, lo, hi int) {
	a := x.op.AttentionGrad()
	s, group, lse := x.attnShape(a.AttentionSizes, a.Mask), a.Group(), f32(a.LSE)
	for bk := lo; bk < hi; bk++ {
		b, hk := bk/a.KVHeads, bk%a.KVHeads
		x.usedHeads, x.heads = 0, x.heads[:0]
		for h := hk * group; h < (hk+1)*group; h++ {
			head := func(t tensorops.Tensor) gemm.Matrix { return x.headOf(t, b, h, s.Queries, s.Dim) }
			x.heads = append(x.heads, attn.Head{Index: b*a.Heads + h, Q: head(a.Q), O: head(a.O), DO: head(a.DO),
				DQ: x.resultOf(a.DQ, b, h, s.Queries, s.Dim), LSE: lse[(b*a.Heads+h)*s.Queries:][:s.Queries]})
		}
		x.keys = attn.Keys{K: x.headOf(a.K, b, hk, s.Keys, s.Dim), V: x.headOf(a.V, b, hk, s.Keys, s.Dim),
			DK: x.resultOf(a.DK, b, hk, s.Keys, s.Dim), DV: x.resultOf(a.DV, b, hk, s.Keys, s.Dim)}
		x.dev.kernels.attn.Backward(&x.attn, s, x.heads, &x.keys)
		for i, h := range x.heads {
			x.roundHead(a.DQ, h.DQ, b, hk*group+i, s.Queries, s.Dim)
		}
		x.roundHead(a.DK, x.keys.DK, b, hk, s.Keys, s.Dim)
		x.roundHead(a.DV, x.keys.DV, b, hk, s.Keys, s.Dim)
	}
}
