package cpu

import (
	"fmt"
	"math"

	"github.com/troupe-ml/troupe/tensorops"
)

// scaledSlot is a slot of exec.wide that no operand of Distill has.
const scaledSlot = 2

func (x *exec) distill() error {
	a := x.op.Distill()
	stats, targets, rows := f64(a.Stats), i32(a.Targets), a.Logits.Rows()
	x.partial = scratch(&x.partial, 2*rows)
	if err := x.parallel(rows, max(1, heavyGrain/a.Logits.Cols()), distillRows); err != nil {
		return err
	}
	clear(stats)
	for n, t := range targets {
		if t != tensorops.IgnoreTarget {
			stats[0] += x.partial[2*n]
			stats[1] += x.partial[2*n+1]
			stats[2]++
		}
	}
	return nil
}

// outcome is one of the teacher's likely ids.
type outcome struct {
	logq  float64 // the student's log-probability
	slope float64 // of the divergence, by the logit over the temperature
}

// distillRows takes a range of rows.
func distillRows(x *exec, lo, hi int) {
	a, kn := x.op.Distill(), x.dev.kernels.vec
	logits, grad, targets, likely, logp := x.values(0, a.Logits), x.values(1, a.Grad), i32(a.Targets), i32(a.IDs), f32(a.LogP)
	v, k := a.Logits.Cols(), a.IDs.Cols()
	known := make([]outcome, k)
	for n := lo; n < hi; n++ {
		from, to := n*a.Logits.Stride(), n*a.Grad.Stride()
		t := int(targets[n])
		if t == tensorops.IgnoreTarget {
			x.clearRow(a.Grad, grad, to)
			continue
		}
		checkTarget(n, t, v)
		row, scaled := x.get(logits, from, from+v), scratch(&x.wide[scaledSlot], v)
		kn.Scaled(scaled, row, float32(1/a.Temperature))
		ids, p := likely[n*k:][:k], logp[n*(k+1):][:k+1]
		for i, id := range ids {
			if id < 0 || int(id) >= v {
				panic(fmt.Errorf("%w: id %d of row %d is %d, but the vocabulary has %d tokens", tensorops.ErrToken, i, n, id, v))
			}
			known[i].logq = float64(scaled[id]) // less the sum below
			scaled[id] = float32(math.Inf(-1))
		}
		others := math.Inf(-1) // their log-sum
		if k < v {
			top := kn.Max(scaled)
			others = float64(top) + math.Log(kn.SumExp(scaled, top))
		}
		norm := sumOf(known, others)
		lse := norm
		if a.Temperature != 1 {
			top := kn.Max(row)
			lse = float64(top) + math.Log(kn.SumExp(row, top))
		}
		x.partial[2*n] = lse - float64(row[t])
		rest := slopes(&x.partial[2*n+1], known, others-norm, norm, p, a.Reverse, k < v)
		if !a.Grad.Valid() {
			continue
		}
		hard, soft := a.Scale*(1-a.Weight), a.Scale*a.Weight*a.Temperature
		out := x.room(grad, to, to+v)
		if a.Temperature == 1 { // both have the same exponentials
			gradOf(x, out, scaled, others, hard*math.Exp(others-norm)+soft*rest)
			for i, id := range ids {
				out[id] = float32(hard*math.Exp(known[i].logq) + soft*known[i].slope)
			}
		} else {
			gradOf(x, scaled, scaled, others, soft*rest)
			for i, id := range ids {
				scaled[id] = float32(soft * known[i].slope)
			}
			kn.CrossEntropyGrad(out, row, lse, float32(hard))
			kn.Add(out, out, scaled)
		}
		out[t] -= float32(hard)
		x.put(grad, to, out)
	}
}

// gradOf stores factor times the share of each of the other ids in all others, of which others is the log-sum.
func gradOf(x *exec, dst, scaled []float32, others, factor float64) {
	if math.IsInf(others, -1) { // there are none, or none is possible
		clear(dst)
		return
	}
	x.dev.kernels.vec.CrossEntropyGrad(dst, scaled, others, float32(factor))
}

// sumOf is the log-sum of the logits of all ids.
func sumOf(known []outcome, others float64) float64 {
	top := others
	for _, o := range known {
		top = max(top, o.logq)
	}
	sum := math.Exp(others - top)
	for _, o := range known {
		sum += math.Exp(o.logq - top)
	}
	return top + math.Log(sum)
}

// slopes computes the divergence and its derivatives: by the logits of the known ids and, as the result, by that of all others.
func slopes(divergence *float64, known []outcome, others, norm float64, logp []float32, reverse, some bool) (rest float64) {
	sum := 0.0
	add := func(logq, logp float64) {
		if p, q := math.Exp(logp), math.Exp(logq); !reverse && p > 0 {
			sum += p * (logp - logq)
		} else if reverse && q > 0 {
			sum += q * (logq - logp)
		}
	}
	for i := range known {
		known[i].logq -= norm
		add(known[i].logq, float64(logp[i]))
	}
	last := float64(logp[len(known)])
	if some {
		add(others, last)
	}
	*divergence = sum
	slope := func(logq, logp float64) float64 {
		switch q := math.Exp(logq); {
		case !reverse:
			return q - math.Exp(logp)
		case q > 0:
			return q * (logq - logp - sum)
		}
		return 0
	}
	for i := range known {
		known[i].slope = slope(known[i].logq, float64(logp[i]))
	}
	if some {
		rest = slope(others, last)
	}
	return rest
}
