package ref

import "github.com/troupe-ml/troupe/tensorops"

// balanceLoads: the loss is linear in the shares, and its gradient goes through them as that of routeGrad does.
func balanceLoads(op *tensorops.Op) {
	a := op.BalanceLoads()
	dlogits, scores, loads := matrixOf(a.DLogits), matrixOf(a.Scores), Values(a.Loads)
	experts, k, total := ids(a.Experts), a.Experts.Cols(), 0.0
	for _, n := range loads {
		total += n
	}
	of := make([]float64, len(loads)) // the gradient of a share
	for e, n := range loads {
		if total > 0 {
			of[e] = float64(len(loads)) * float64(k) * n / total
		}
	}
	loss := 0.0
	for n := range scores.rows {
		if experts[n*k] < 0 {
			continue
		}
		row := make([]float64, scores.cols)
		for e := range row {
			row[e] = *scores.at(n, e)
		}
		sum, mean := shared(row, a.Sigmoid), 0.0
		for e, s := range row {
			mean += of[e] * s / sum
		}
		loss += mean
		for e, s := range row {
			d := a.Weight * s * (of[e] - mean)
			if a.Sigmoid {
				d *= (1 - s) / sum
			}
			*dlogits.at(n, e) += d
		}
	}
	if a.Sum.Valid() {
		Values(a.Sum)[0] += loss
	}
}
