package cpu

import (
	"fmt"
	"math"

	"github.com/troupe-ml/troupe/tensorops"
)

func (x *exec) crossEntropy() error {
	op := x.op
	stats, targets, rows := f64(op.T[0]), i32(op.T[3]), op.T[2].Rows()
	x.partial = scratch(&x.partial, rows)
	if err := x.parallel(rows, max(1, heavyGrain/op.T[2].Cols()), crossEntropyRows); err != nil {
		return err
	}
	var sum, count float64
	for n, t := range targets {
		if t != tensorops.IgnoreTarget {
			sum += x.partial[n]
			count++
		}
	}
	stats[0], stats[1] = sum, count
	return nil
}

// crossEntropyRows takes a range of rows: all that is done with a row is done
// while it is in the cache.
func crossEntropyRows(x *exec, lo, hi int) {
	op, kn := x.op, x.dev.kernels.vec
	lse, logits, targets := f64(op.T[1]), f32(op.T[2]), i32(op.T[3])
	var grad []float32
	if op.T[4].Valid() {
		grad = f32(op.T[4])
	}
	v, scale := op.T[2].Cols(), float32(op.F[0])
	for n := lo; n < hi; n++ {
		row, t := logits[n*v:][:v], int(targets[n])
		top := kn.Max(row)
		lse[n] = float64(top) + math.Log(kn.SumExp(row, top))
		switch {
		case t == tensorops.IgnoreTarget:
			if grad != nil {
				clear(grad[n*v:][:v])
			}
			continue
		case t < 0 || t >= v:
			panic(fmt.Errorf("%w: target of row %d is %d, the vocabulary has %d", tensorops.ErrToken, n, t, v))
		}
		x.partial[n] = lse[n] - float64(row[t])
		if grad != nil {
			out := grad[n*v:][:v]
			kn.CrossEntropyGrad(out, row, lse[n], scale)
			out[t] -= scale
		}
	}
}
