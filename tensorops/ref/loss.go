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
	stats, lse, logits := Values(a.Stats), Values(a.LSE), Values(a.Logits)
	vocabulary := a.Logits.Cols()
	stats[0], stats[1] = 0, 0
	for n, target := range ids(a.Targets) {
		logit := row(logits, n, vocabulary)
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
		grad := row(Values(a.Grad), n, vocabulary)
		if target == tensorops.IgnoreTarget {
			clear(grad)
			continue
		}
		for j, l := range logit {
			grad[j] = a.Scale * math.Exp(l-lse[n])
		}
		grad[target] -= a.Scale
	}
	return nil
}
