package cpu

import (
	"math"

	"github.com/troupe-ml/troupe/tensorops"
)

func crossEntropyPart(x *exec, lo, hi int) {
	a, kn := x.op.CrossEntropyPart(), x.dev.kernels.vec
	parts, logits, targets, v := f64(a.Parts), x.values(0, a.Logits), i32(a.Targets), a.Logits.Cols()
	for n := lo; n < hi; n++ {
		at := n * a.Logits.Stride()
		row, t := x.get(logits, at, at+v), int(targets[n])
		top := kn.Max(row)
		part := parts[n*tensorops.LossParts:][:tensorops.LossParts]
		part[0], part[1] = float64(top)+math.Log(kn.SumExp(row, top)), 0
		if t != tensorops.IgnoreTarget {
			checkTarget(n, t, a.Vocab)
		}
		if t -= a.First; t >= 0 && t < v {
			part[1] = float64(row[t])
		}
	}
}

// crossEntropyJoin sums over few numbers a row, and makes the gradient on all cores.
func (x *exec) crossEntropyJoin() error {
	a := x.op.CrossEntropyJoin()
	stats, lse, parts, targets := f64(a.Stats), f64(a.LSE), f64(a.Parts), i32(a.Targets)
	stats[0], stats[1] = 0, 0
	each := tensorops.LossParts * len(targets)
	for n, t := range targets {
		top, sum, logit := math.Inf(-1), 0.0, 0.0
		for at := n * tensorops.LossParts; at < len(parts); at += each {
			top, logit = max(top, parts[at]), logit+parts[at+1]
		}
		for at := n * tensorops.LossParts; at < len(parts); at += each {
			sum += math.Exp(parts[at] - top)
		}
		lse[n] = top + math.Log(sum)
		if t != tensorops.IgnoreTarget {
			stats[0] += lse[n] - logit
			stats[1]++
		}
	}
	if !a.Grad.Valid() {
		return nil
	}
	return x.parallel(len(targets), max(1, heavyGrain/a.Grad.Cols()), crossEntropyJoinRows)
}

func crossEntropyJoinRows(x *exec, lo, hi int) {
	a, kn := x.op.CrossEntropyJoin(), x.dev.kernels.vec
	lse, logits, targets, grad := f64(a.LSE), x.values(0, a.Logits), i32(a.Targets), x.values(1, a.Grad)
	v := a.Logits.Cols()
	for n := lo; n < hi; n++ {
		from, to := n*a.Logits.Stride(), n*a.Grad.Stride()
		out, t := x.room(grad, to, to+v), int(targets[n])
		if t == tensorops.IgnoreTarget {
			clear(out)
		} else {
			scale := rowScale(a.CrossEntropyOpts, n)
			kn.CrossEntropyGrad(out, x.get(logits, from, from+v), lse[n], scale)
			if t -= a.First; t >= 0 && t < v {
				out[t] -= scale
			}
		}
		x.put(grad, to, out)
	}
}
