package ref

import (
	"math"

	"github.com/troupe-ml/troupe/tensorops"
)

// logSumExp is log Σ exp of the values; the largest is taken out first, so that
// no exponential overflows.
func logSumExp(values []float64) float64 {
	top := math.Inf(-1)
	for _, v := range values {
		top = math.Max(top, v)
	}
	var sum float64
	for _, v := range values {
		sum += math.Exp(v - top)
	}
	return top + math.Log(sum)
}

// crossEntropy: lse of every row; stats = (Σ lse − logits[target], targets);
// where asked for, dlogits = scale·(softmax − onehot), 0 without a target.
func crossEntropy(op *tensorops.Op) error {
	a := op.CrossEntropy()
	stats, lse := Values(a.Stats), Values(a.LSE)
	vocabulary := a.Logits.Cols()
	stats[0], stats[1] = 0, 0
	for n, target := range ids(a.Targets) {
		logit := rowOf(a.Logits, n)
		lse[n] = logSumExp(logit)
		if target != tensorops.IgnoreTarget {
			if err := checkID(n, target, vocabulary); err != nil {
				return err
			}
			stats[0] += lse[n] - logit[target]
			stats[1]++
		}
		if !a.Grad.Valid() {
			continue
		}
		grad := rowOf(a.Grad, n)
		if target == tensorops.IgnoreTarget {
			clear(grad)
			continue
		}
		scale := rowScale(a.CrossEntropyOpts, n)
		for j, l := range logit {
			grad[j] = scale * math.Exp(l-lse[n])
		}
		grad[target] -= scale
	}
	return nil
}

// rowScale is the factor of row n of the gradient.
func rowScale(o tensorops.CrossEntropyOpts, n int) float64 {
	if !o.RowScale.Valid() {
		return o.Scale
	}
	return o.Scale * Values(o.RowScale)[n]
}

// crossEntropyPart: parts = (log Σ exp of the row, the target's logit).
func crossEntropyPart(op *tensorops.Op) error {
	a := op.CrossEntropyPart()
	parts, width := Values(a.Parts), a.Logits.Cols()
	for n, target := range ids(a.Targets) {
		logit, part := rowOf(a.Logits, n), row(parts, n, tensorops.LossParts)
		part[0], part[1] = logSumExp(logit), 0
		if target == tensorops.IgnoreTarget {
			continue
		}
		if err := checkID(n, target, a.Vocab); err != nil {
			return err
		}
		if j := int(target) - a.First; j >= 0 && j < width {
			part[1] = logit[j]
		}
	}
	return nil
}

// crossEntropyJoin: crossEntropy of the parts of all slices, and the gradient of one of them.
func crossEntropyJoin(op *tensorops.Op) {
	a := op.CrossEntropyJoin()
	stats, lse, parts, targets := Values(a.Stats), Values(a.LSE), Values(a.Parts), ids(a.Targets)
	stats[0], stats[1] = 0, 0
	each := tensorops.LossParts * len(targets)
	for n, target := range targets {
		var sums []float64
		var logit float64
		for slice := 0; slice < len(parts); slice += each {
			part := row(parts[slice:], n, tensorops.LossParts)
			sums, logit = append(sums, part[0]), logit+part[1]
		}
		lse[n] = logSumExp(sums)
		if target != tensorops.IgnoreTarget {
			stats[0] += lse[n] - logit
			stats[1]++
		}
		if !a.Grad.Valid() {
			continue
		}
		grad, logits := rowOf(a.Grad, n), rowOf(a.Logits, n)
		if target == tensorops.IgnoreTarget {
			clear(grad)
			continue
		}
		scale := rowScale(a.CrossEntropyOpts, n)
		for j, v := range logits {
			grad[j] = scale * math.Exp(v-lse[n])
		}
		if j := int(target) - a.First; j >= 0 && j < len(grad) {
			grad[j] -= scale
		}
	}
}
