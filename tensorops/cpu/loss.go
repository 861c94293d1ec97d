package cpu

import (
	"fmt"
	"math"

	"github.com/troupe-ml/troupe/tensorops"
)

func (x *exec) crossEntropy() error {
	op := x.op
	stats, lse, logits, targets := f64(op.T[0]), f64(op.T[1]), f32(op.T[2]), i32(op.T[3])
	v := op.T[2].Cols()
	if err := x.parallel(op.T[2].Rows(), max(1, heavyGrain/v), logSumExp); err != nil {
		return err
	}
	var sum, count float64
	for n, t := range targets {
		if t == tensorops.IgnoreTarget {
			continue
		}
		if t < 0 || int(t) >= v {
			return fmt.Errorf("%w: target of row %d is %d, the vocabulary has %d", tensorops.ErrToken, n, t, v)
		}
		sum += lse[n] - float64(logits[n*v+int(t)])
		count++
	}
	stats[0], stats[1] = sum, count
	return nil
}

func logSumExp(x *exec, lo, hi int) {
	lse, logits := f64(x.op.T[1]), f32(x.op.T[2])
	v := x.op.T[2].Cols()
	for n := lo; n < hi; n++ {
		row := logits[n*v:][:v]
		top := x.dev.kernels.vec.Max(row)
		lse[n] = float64(top) + math.Log(x.dev.kernels.vec.SumExp(row, top))
	}
}

func crossEntropyGrad(x *exec, lo, hi int) {
	d, logits, lse, targets := f32(x.op.T[0]), f32(x.op.T[1]), f64(x.op.T[2]), i32(x.op.T[3])
	v, scale := x.op.T[1].Cols(), float32(x.op.F[0])
	for n := lo; n < hi; n++ {
		out, row := d[n*v:][:v], logits[n*v:][:v]
		t := targets[n]
		if t == tensorops.IgnoreTarget {
			clear(out)
			continue
		}
		if t < 0 || int(t) >= v {
			panic(fmt.Errorf("%w: target of row %d is %d, the vocabulary has %d", tensorops.ErrToken, n, t, v))
		}
		x.dev.kernels.vec.CrossEntropyGrad(out, row, lse[n], scale)
		out[t] -= scale
	}
}
