package cpu

import (
	"math"

	"github.com/troupe-ml/troupe/tensorops/cpu/internal/gemm"
)

// attentionSink takes a range of the rows of o.
func attentionSink(x *exec, lo, hi int) {
	a := x.op.AttentionSink()
	o, lse, sinks := x.values(0, a.O), f32(a.LSE), f32(a.Sinks)
	d := a.Width
	for row := lo; row < hi; row++ {
		b, i := row/a.Queries, row%a.Queries
		for h, sink := range sinks {
			at := (b*a.Heads+h)*a.Queries + i
			total, kept := withSink(float64(lse[at]), float64(sink))
			from := (row*a.Heads + h) * d
			head := x.get(o, from, from+d)
			for c := range head {
				head[c] *= float32(kept)
			}
			x.put(o, from, head)
			lse[at] = float32(total)
		}
	}
}

// withSink is the logarithm of a softmax's sum with a sink in it, and the share of the sum that was there before.
func withSink(lse, sink float64) (total, kept float64) {
	if math.IsInf(sink, -1) {
		return lse, 1
	}
	top := max(lse, sink)
	total = top + math.Log(math.Exp(lse-top)+math.Exp(sink-top))
	return total, math.Exp(lse - total)
}

// attentionSinkGrad takes a range of heads. A head's sum runs over all queries of all sequences, in ascending order.
func attentionSinkGrad(x *exec, lo, hi int) {
	a := x.op.AttentionSinkGrad()
	dsinks, lse, sinks, kernel := f32(a.DSinks), f32(a.LSE), f32(a.Sinks), x.dev.kernels.attn
	room := scratch(&x.rows, a.Queries+2*a.Width)
	products, tmp := room[:a.Queries], room[a.Queries:]
	for h := lo; h < hi; h++ {
		sum := 0.0
		for b := range a.Batch {
			head := func(i int) gemm.Matrix { return headOf(x.op.T[i], b, h, a.Queries, a.Width) }
			kernel.Products(products, head(1), head(2), a.Width, tmp)
			for i, v := range products {
				if weight := math.Exp(float64(sinks[h]) - float64(lse[(b*a.Heads+h)*a.Queries+i])); weight > 0 {
					sum += float64(weight * float64(v))
				}
			}
		}
		dsinks[h] = float32(float64(dsinks[h]) - sum)
	}
}
