package ref

import (
	"cmp"
	"math"
	"slices"

	"github.com/troupe-ml/troupe/tensorops"
)

// route: the scores of each row, its best experts, and where the experts' rows are.
func route(op *tensorops.Op) {
	a := op.Route()
	scores, weights, logits := matrixOf(a.Scores), matrixOf(a.Weights), matrixOf(a.Logits)
	experts, places, offsets := ids(a.Experts), ids(a.Places), ids(a.Offsets)
	k := a.Experts.Cols()
	var bias []float64
	if a.Bias.Valid() {
		bias = Values(a.Bias)
	}
	clear(offsets)
	for n := range logits.rows {
		row := make([]float64, logits.cols)
		for e := range row {
			row[e] = *logits.at(n, e)
		}
		score(row, a.Sigmoid)
		order := make([]int, len(row))
		rank := make([]float64, len(row))
		for e, s := range row {
			*scores.at(n, e), order[e], rank[e] = s, e, s
			if bias != nil {
				rank[e] += bias[e]
			}
		}
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(rank[b], rank[a]) }) // NaN is least
		chosen := order[:k]
		slices.Sort(chosen)
		total := 1.0
		if a.Renormalize {
			total = 0
			for _, e := range chosen {
				total += row[e]
			}
		}
		for j, e := range chosen {
			experts[n*k+j] = int32(e)
			*weights.at(n, j) = a.Factor() * row[e] / total
			offsets[e+1]++
		}
	}
	for e := 1; e < len(offsets); e++ {
		offsets[e] += offsets[e-1]
	}
	next := slices.Clone(offsets)
	for i, e := range experts {
		places[i] = next[e]
		next[e]++
	}
}

// score turns a row of logits into scores.
func score(row []float64, sigmoids bool) {
	if sigmoids {
		for e, x := range row {
			row[e] = sigmoid(x)
		}
		return
	}
	lse := logSumExp(row)
	for e, x := range row {
		row[e] = math.Exp(x - lse)
	}
}

// routeGrad: through the weights of the chosen experts, their sum, the balance, and the scores.
func routeGrad(op *tensorops.Op) {
	a := op.RouteGrad()
	dlogits, dweights, scores := matrixOf(a.DLogits), matrixOf(a.DWeights), matrixOf(a.Scores)
	experts, offsets, k := ids(a.Experts), ids(a.Offsets), a.Experts.Cols()
	for n := range scores.rows {
		chosen := experts[n*k : (n+1)*k]
		total, mean := 1.0, 0.0
		if a.Renormalize {
			total = 0
			for _, e := range chosen {
				total += *scores.at(n, int(e))
			}
			for j, e := range chosen {
				mean += *dweights.at(n, j) * *scores.at(n, int(e)) / total
			}
		}
		dscores := make([]float64, scores.cols)
		for j, e := range chosen {
			dscores[e] = a.Factor() / total * (*dweights.at(n, j) - mean)
		}
		inner := 0.0
		for e := range dscores {
			dscores[e] += a.Balance * float64(offsets[e+1]-offsets[e])
			inner += dscores[e] * *scores.at(n, e)
		}
		for e, d := range dscores {
			s := *scores.at(n, e)
			if a.Sigmoid {
				*dlogits.at(n, e) = d * s * (1 - s)
			} else {
				*dlogits.at(n, e) = s * (d - inner)
			}
		}
	}
}

// routeStats: rows, balance loss, entropy and counts.
func routeStats(op *tensorops.Op) {
	a := op.RouteStats()
	stats, scores, offsets := Values(a.Stats), matrixOf(a.Scores), ids(a.Offsets)
	rows := float64(scores.rows)
	stats[tensorops.RouteRows] += rows
	for e := range scores.cols {
		count, sum := float64(offsets[e+1]-offsets[e]), 0.0
		for n := range scores.rows {
			s := *scores.at(n, e)
			sum += s
			if s > 0 {
				stats[tensorops.RouteEntropy] -= s * math.Log(s)
			}
		}
		if rows > 0 {
			stats[tensorops.RouteBalance] += float64(scores.cols) * count * sum / rows
		}
		stats[tensorops.RouteCounts+e] += count
	}
}
