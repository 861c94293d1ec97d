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

// crossEntropy: lse of every row; stats = (Σ lse − logits[target], targets).
func crossEntropy(op *tensorops.Op) error {
	stats, lse, logits := Values(op.T[0]), Values(op.T[1]), Values(op.T[2])
	vocabulary := op.T[2].Cols()
	stats[0], stats[1] = 0, 0
	for n, target := range ids(op.T[3]) {
		logit := row(logits, n, vocabulary)
		lse[n] = logSumExp(logit)
		if target == tensorops.IgnoreTarget {
			continue
		}
		if err := checkID(n, target, vocabulary); err != nil {
			return err
		}
		stats[0] += lse[n] - logit[target]
		stats[1]++
	}
	return nil
}

// crossEntropyGrad: dlogits = scale·(softmax − onehot), 0 without a target.
func crossEntropyGrad(op *tensorops.Op) error {
	dlogits, logits, lse := Values(op.T[0]), Values(op.T[1]), Values(op.T[2])
	vocabulary, scale := op.T[1].Cols(), op.F[0]
	for n, target := range ids(op.T[3]) {
		grad := row(dlogits, n, vocabulary)
		if target == tensorops.IgnoreTarget {
			clear(grad)
			continue
		}
		if err := checkID(n, target, vocabulary); err != nil {
			return err
		}
		for j, logit := range row(logits, n, vocabulary) {
			grad[j] = scale * math.Exp(logit-lse[n])
		}
		grad[target] -= scale
	}
	return nil
}
