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
		rank := make([]float64, len(row))
		for e, s := range row {
			*scores.at(n, e), rank[e] = s, s
			if bias != nil {
				rank[e] += bias[e]
			}
		}
		var candidates []int
		for _, g := range bestGroups(rank, a.RouteOpts) {
			for e := range len(row) / max(a.Groups, 1) {
				candidates = append(candidates, g*(len(row)/max(a.Groups, 1))+e)
			}
		}
		chosen := bestOf(candidates, rank)[:k]
		slices.Sort(chosen)
		total := chosenTotal(row, chosen, a.RouteOpts)
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

// bestOf sorts numbers in ascending order by descending rank, the lower number first where they are equal, and NaN last.
func bestOf(numbers []int, rank []float64) []int {
	slices.SortStableFunc(numbers, func(a, b int) int { return cmp.Compare(rank[b], rank[a]) }) // NaN is least
	return numbers
}

// bestGroups returns the groups of a row in ascending order; without groups one with all experts.
func bestGroups(rank []float64, r tensorops.RouteOpts) []int {
	if r.Groups == 0 {
		return []int{0}
	}
	size := len(rank) / r.Groups
	sums, numbers := make([]float64, r.Groups), make([]int, r.Groups)
	for g := range sums {
		members := make([]int, size)
		for i := range members {
			members[i] = g*size + i
		}
		best := bestOf(members, rank)
		sums[g], numbers[g] = rank[best[0]]+rank[best[1]], g
	}
	best := bestOf(numbers, sums)[:r.TopGroups]
	slices.Sort(best)
	return best
}

// chosenTotal is what divides the weights of a row.
func chosenTotal[E int | int32](row []float64, chosen []E, r tensorops.RouteOpts) float64 {
	if !r.Renormalize {
		return 1
	}
	total := 0.0
	if r.Sigmoid {
		total = tensorops.SigmoidFloor
	}
	for _, e := range chosen {
		total += row[e]
	}
	return total
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

// counted returns the rows of each expert in each sequence.
func counted(experts []int32, width int, r tensorops.RouteOpts) [][]float64 {
	runs := max(r.Sequences, 1)
	counts := make([][]float64, runs)
	for i := range counts {
		if counts[i] = make([]float64, width); r.Loads.Valid() {
			copy(counts[i], Values(r.Loads)[i*width:])
		}
	}
	for i, e := range experts {
		if e >= 0 && !r.Loads.Valid() {
			counts[i*runs/len(experts)][e]++
		}
	}
	return counts
}

// shared returns what a row's scores are divided by to be shares: 1 of a softmax.
func shared(row []float64, sigmoids bool) float64 {
	if !sigmoids {
		return 1
	}
	sum := tensorops.SigmoidFloor
	for _, s := range row {
		sum += s
	}
	return sum
}

// routeGrad: through the weights of the chosen experts, their sum, the balance, the scores, and the z-loss.
func routeGrad(op *tensorops.Op) {
	a := op.RouteGrad()
	dlogits, dweights, scores := matrixOf(a.DLogits), matrixOf(a.DWeights), matrixOf(a.Scores)
	experts, k := ids(a.Experts), a.Experts.Cols()
	counts := counted(experts, scores.cols, a.RouteOpts)
	for n := range scores.rows {
		chosen, row := experts[n*k:(n+1)*k], make([]float64, scores.cols)
		if chosen[0] < 0 { // left out
			for e := range row {
				*dlogits.at(n, e) = 0
			}
			continue
		}
		for e := range row {
			row[e] = *scores.at(n, e)
		}
		total, mean := chosenTotal(row, chosen, a.RouteOpts), 0.0
		if a.Renormalize {
			for j, e := range chosen {
				mean += *dweights.at(n, j) * row[e] / total
			}
		}
		dscores, balance, sum := make([]float64, scores.cols), 0.0, shared(row, a.Sigmoid)
		of := counts[n*len(counts)/scores.rows]
		for e, s := range row {
			balance += a.Balance * of[e] * s / sum
		}
		if !a.Sigmoid {
			balance = 0 // the softmax's own gradient has it
		}
		for j, e := range chosen {
			dscores[e] = a.Factor() / total * (*dweights.at(n, j) - mean)
		}
		inner := 0.0
		for e := range dscores {
			dscores[e] += (a.Balance*of[e] - balance) / sum
			inner += dscores[e] * row[e]
		}
		for e, d := range dscores {
			if s := row[e]; a.Sigmoid {
				*dlogits.at(n, e) = d * s * (1 - s)
			} else {
				*dlogits.at(n, e) = s * (d - inner)
			}
		}
		if a.Logits.Valid() {
			logits := rowOf(a.Logits, n)
			lse := logSumExp(logits)
			for e, x := range logits {
				*dlogits.at(n, e) += 2 * a.ZLoss * lse * math.Exp(x-lse)
			}
		}
	}
}

// routeStats: rows, balance loss, entropy, z-loss and counts.
func routeStats(op *tensorops.Op) {
	a := op.RouteStats()
	stats, scores, experts, k := Values(a.Stats), matrixOf(a.Scores), ids(a.Experts), a.Experts.Cols()
	counts := counted(experts, scores.cols, a.RouteOpts)
	for n := range scores.rows {
		chosen, row := experts[n*k:(n+1)*k], make([]float64, scores.cols)
		if chosen[0] < 0 { // left out
			continue
		}
		stats[tensorops.RouteRows]++
		for _, e := range chosen {
			stats[tensorops.RouteCounts+e]++
		}
		for e := range row {
			row[e] = *scores.at(n, e)
		}
		sum, of := shared(row, a.Sigmoid), counts[n*len(counts)/scores.rows]
		rows := 0.0 // of the sequence, on all ranks
		for _, n := range of {
			rows += n / float64(k)
		}
		for e := range row {
			s := row[e] / sum
			if s > 0 {
				stats[tensorops.RouteEntropy] -= s * math.Log(s)
			}
			stats[tensorops.RouteBalance] += float64(scores.cols) * of[e] * s / rows
		}
		if a.Logits.Valid() {
			lse := logSumExp(rowOf(a.Logits, n))
			stats[tensorops.RouteZ] += lse * lse
		}
	}
}
