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
	stats, lse, logits := Values(op.T[0]), Values(op.T[1]), Values(op.T[2])
	vocabulary, scale := op.T[2].Cols(), op.F[0]
	stats[0], stats[1] = 0, 0
	for n, target := range ids(op.T[3]) {
		logit := row(logits, n, vocabulary)
		lse[n] = logSumExp(logit)
		if target != tensorops.IgnoreTarget {
			if err := checkID(n, target, vocabulary); err != nil {
				return err
			}
			stats[0] += lse[n] - logit[target]
			stats[1]++
		}
		if !op.T[4].Valid() {
			continue
		}
		grad := row(Values(op.T[4]), n, vocabulary)
		if target == tensorops.IgnoreTarget {
			clear(grad)
			continue
		}
		for j, l := range logit {
			grad[j] = scale * math.Exp(l-lse[n])
		}
		grad[target] -= scale
	}
	return nil
}
