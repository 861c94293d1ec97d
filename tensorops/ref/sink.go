package ref

import (
	"math"

	"github.com/troupe-ml/troupe/tensorops"
)

// eachHead visits the rows of each query of a head, in the order of lse.
func eachHead(s tensorops.SinkSizes, visit func(head, row, at int)) {
	for b := range s.Batch {
		for h := range s.Heads {
			for i := range s.Queries {
				visit(h, b*s.Queries+i, (b*s.Heads+h)*s.Queries+i)
			}
		}
	}
}

// attentionSink: lse ← log(e^lse + e^sink); o keeps the share of the sum that it had.
func attentionSink(op *tensorops.Op) {
	a := op.AttentionSink()
	o, lse, sinks := matrixOf(a.O), Values(a.LSE), Values(a.Sinks)
	eachHead(a.SinkSizes, func(h, row, at int) {
		before := lse[at]
		if math.IsInf(sinks[h], -1) {
			return
		}
		lse[at] = logSumExp([]float64{before, sinks[h]})
		for c := range a.Width {
			*o.at(row, h*a.Width+c) *= math.Exp(before - lse[at])
		}
	})
}

// attentionSinkGrad: dsink −= Σ e^(sink − lse)·(do·o).
func attentionSinkGrad(op *tensorops.Op) {
	a := op.AttentionSinkGrad()
	dsinks, do, o, lse, sinks := Values(a.DSinks), matrixOf(a.DO), matrixOf(a.O), Values(a.LSE), Values(a.Sinks)
	eachHead(a.SinkSizes, func(h, row, at int) {
		if math.IsInf(sinks[h], -1) {
			return
		}
		for c := range a.Width {
			dsinks[h] -= math.Exp(sinks[h]-lse[at]) * *do.at(row, h*a.Width+c) * *o.at(row, h*a.Width+c)
		}
	})
}
