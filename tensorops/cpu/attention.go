package cpu

import (
	"math"

	"github.com/troupe-ml/troupe/tensorops/cpu/internal/gemm"
)

// attnBlock is the number of query rows worked on at a time.
const attnBlock = 64

// attn are the sizes and operands of one attention for one sequence.
type attn struct {
	tq, tk, d    int
	heads, group int // query heads, and how many of them share a key head
	scale        float32
	keep         keeper
	inverse      float32 // 1/(1−P), 0 without dropout
	first        uint64
}

func (x *exec) attn(q int) attn {
	op := x.op
	a := attn{tq: op.I[1], tk: op.I[2], heads: op.I[3], group: op.I[3] / op.I[4]}
	a.d = op.T[q].Cols() / a.heads
	a.scale = float32(1 / math.Sqrt(float64(a.d)))
	if op.F[0] > 0 {
		a.keep, a.inverse, a.first = newKeeper(op.Key, op.U, op.F[0]), float32(1/(1-op.F[0])), op.U[1]
	}
	return a
}

// head is one head's matrix of a tensor: rows of sequence b, columns of head h.
func (x *exec) head(i, b, h, t, d int) gemm.Matrix {
	m := matrixOf(x.op.T[i], false)
	return m.At(b*t, h*d)
}

// visible is the number of keys that query row i sees.
func (a *attn) visible(i int) int { return i + 1 + a.tk - a.tq }

// dropRow applies the mask of query row i to its probabilities.
func (a *attn) dropRow(p []float32, b, h, i int) {
	base := a.first + ((uint64(b)*uint64(a.heads)+uint64(h))*uint64(a.tq)+uint64(i))*uint64(a.tk)
	for j := range p {
		if a.keep.keep(base + uint64(j)) {
			p[j] *= a.inverse
		} else {
			p[j] = 0
		}
	}
}

// attention takes a range of (sequence, head).
func attention(x *exec, lo, hi int) {
	a := x.attn(1)
	lse := f32(x.op.T[4])
	for bh := lo; bh < hi; bh++ {
		b, h := bh/a.heads, bh%a.heads
		o, q := x.head(0, b, h, a.tq, a.d), x.head(1, b, h, a.tq, a.d)
		k, v := x.head(2, b, h/a.group, a.tk, a.d), x.head(3, b, h/a.group, a.tk, a.d)
		for i0 := 0; i0 < a.tq; i0 += attnBlock {
			n := min(attnBlock, a.tq-i0)
			seen := a.visible(i0 + n - 1)
			s := gemm.Matrix{Data: scratch(&x.rows, n*seen), Row: seen, Col: 1}
			x.dev.kernels.gemm.Multiply(&x.work, n, seen, a.d, q.At(i0, 0), k.T(), s, false)
			for r := range n {
				row := s.Data[r*seen:][:seen]
				lse[bh*a.tq+i0+r] = x.softmax(row, a.visible(i0+r), a.scale)
				if a.inverse != 0 {
					a.dropRow(row[:a.visible(i0+r)], b, h, i0+r)
				}
			}
			x.dev.kernels.gemm.Multiply(&x.work, n, a.d, seen, s, v, o.At(i0, 0), false)
		}
	}
}

// softmax replaces the first n scores by their probabilities and the rest by 0;
// it returns the logarithm of the sum.
func (x *exec) softmax(row []float32, n int, scale float32) float32 {
	clear(row[n:])
	row = row[:n]
	top := rowMax(row) * scale
	for j, e := range row {
		row[j] = e*scale - top
	}
	x.dev.kernels.exp(row, row)
	sum := sum64(row)
	inv := float32(1 / sum)
	for j := range row {
		row[j] *= inv
	}
	return float32(float64(top) + math.Log(sum))
}

// attentionGrad takes a range of (sequence, key head): the query heads that
// share a key head add to its gradient in ascending order.
func attentionGrad(x *exec, lo, hi int) {
	a := x.attn(4)
	lse := f32(x.op.T[8])
	kvHeads := a.heads / a.group
	for bk := lo; bk < hi; bk++ {
		b, hk := bk/kvHeads, bk%kvHeads
		dk, dv := x.head(1, b, hk, a.tk, a.d), x.head(2, b, hk, a.tk, a.d)
		k, v := x.head(5, b, hk, a.tk, a.d), x.head(6, b, hk, a.tk, a.d)
		for r := range a.tk {
			clear(dk.Data[r*dk.Row:][:a.d])
			clear(dv.Data[r*dv.Row:][:a.d])
		}
		for h := hk * a.group; h < (hk+1)*a.group; h++ {
			dq, do := x.head(0, b, h, a.tq, a.d), x.head(3, b, h, a.tq, a.d)
			q, o := x.head(4, b, h, a.tq, a.d), x.head(7, b, h, a.tq, a.d)
			for i0 := 0; i0 < a.tq; i0 += attnBlock {
				n := min(attnBlock, a.tq-i0)
				seen := a.visible(i0 + n - 1)
				work := scratch(&x.rows, 3*n*seen)
				p := gemm.Matrix{Data: work[:n*seen], Row: seen, Col: 1}                // probabilities
				dropped := gemm.Matrix{Data: work[n*seen:][:n*seen], Row: seen, Col: 1} // after dropout
				dp := gemm.Matrix{Data: work[2*n*seen:], Row: seen, Col: 1}             // their gradient, then the scores'
				x.dev.kernels.gemm.Multiply(&x.work, n, seen, a.d, q.At(i0, 0), k.T(), p, false)
				x.dev.kernels.gemm.Multiply(&x.work, n, seen, a.d, do.At(i0, 0), v.T(), dp, false)
				for r := range n {
					i, vis := i0+r, a.visible(i0+r)
					row, drop, grad := p.Data[r*seen:][:seen], dropped.Data[r*seen:][:seen], dp.Data[r*seen:][:seen]
					clear(row[vis:])
					clear(drop[vis:])
					clear(grad[vis:])
					row, drop, grad = row[:vis], drop[:vis], grad[:vis]
					l := lse[(b*a.heads+h)*a.tq+i]
					for j, e := range row {
						row[j] = e*a.scale - l
					}
					x.dev.kernels.exp(row, row)
					copy(drop, row)
					if a.inverse != 0 {
						a.dropRow(drop, b, h, i)
						a.dropRow(grad, b, h, i)
					}
					delta := dot(do.Data[i*do.Row:][:a.d], o.Data[i*o.Row:][:a.d])
					for j, e := range row {
						grad[j] = e * (grad[j] - delta) * a.scale
					}
				}
				x.dev.kernels.gemm.Multiply(&x.work, seen, a.d, n, dropped.T(), do.At(i0, 0), dv, true)
				x.dev.kernels.gemm.Multiply(&x.work, seen, a.d, n, dp.T(), q.At(i0, 0), dk, true)
				x.dev.kernels.gemm.Multiply(&x.work, n, a.d, seen, dp, k, dq.At(i0, 0), false)
			}
		}
	}
}

func dot(a, b []float32) float32 {
	var sum float64
	for i, v := range a {
		sum += float64(v) * float64(b[i])
	}
	return float32(sum)
}

// sum64 adds in float64: four sums, so that one addition need not wait for the
// one before.
func sum64(v []float32) float64 {
	var s0, s1, s2, s3 float64
	for len(v) >= 4 {
		s0 += float64(v[0])
		s1 += float64(v[1])
		s2 += float64(v[2])
		s3 += float64(v[3])
		v = v[4:]
	}
	for _, e := range v {
		s0 += float64(e)
	}
	return (s0 + s1) + (s2 + s3)
}
