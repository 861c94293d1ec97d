package cpu

import (
	"fmt"
	"math"

	"github.com/troupe-ml/troupe/tensorops"
)

func (x *exec) crossEntropy() error {
	a := x.op.CrossEntropy()
	stats, targets, rows := f64(a.Stats), i32(a.Targets), a.Logits.Rows()
	x.partial = scratch(&x.partial, rows)
	if err := x.parallel(rows, max(1, heavyGrain/a.Logits.Cols()), crossEntropyRows); err != nil {
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
	a, kn := x.op.CrossEntropy(), x.dev.kernels.vec
	lse, logits, targets, grad := f64(a.LSE), x.values(0, a.Logits), i32(a.Targets), x.values(1, a.Grad)
	v := a.Logits.Cols()
	for n := lo; n < hi; n++ {
		from, to := n*a.Logits.Stride(), n*a.Grad.Stride()
		row, t := x.get(logits, from, from+v), int(targets[n])
		top := kn.Max(row)
		lse[n] = float64(top) + math.Log(kn.SumExp(row, top))
		if t == tensorops.IgnoreTarget {
			x.clearRow(a.Grad, grad, to)
			continue
		}
		checkTarget(n, t, v)
		x.partial[n] = lse[n] - float64(row[t])
		if a.Grad.Valid() {
			out, scale := x.room(grad, to, to+v), rowScale(a.CrossEntropyOpts, n)
			kn.CrossEntropyGrad(out, row, lse[n], scale)
			out[t] -= scale
			x.put(grad, to, out)
		}
	}
}

// clearRow sets a row of a gradient to 0, if there is a gradient.
func (x *exec) clearRow(t tensorops.Tensor, grad values, at int) {
	if !t.Valid() {
		return
	}
	out := x.room(grad, at, at+t.Cols())
	clear(out)
	x.put(grad, at, out)
}

// checkTarget panics if the target of row n is not in the vocabulary. The stream reports it as an error of the list.
func checkTarget(n, target, vocab int) {
	if target < 0 || target >= vocab {
		panic(fmt.Errorf("%w: the target of row %d is %d, but the vocabulary has %d tokens", tensorops.ErrToken, n, target, vocab))
	}
}

// rowScale is the factor of row n of the gradient.
func rowScale(o tensorops.CrossEntropyOpts, n int) float32 {
	if !o.RowScale.Valid() {
		return float32(o.Scale)
	}
	return float32(o.Scale * f64(o.RowScale)[n])
}
