package cpu

import (
	"math"
	"slices"

	"github.com/troupe-ml/troupe/tensorops"
)

// routeGrain is the number of rows of a router that are worth a range.
func routeGrain(experts int) int { return max(1, heavyGrain/8/max(experts, 1)) }

// route chooses experts row by row; the counting that follows is short.
func (x *exec) route() error {
	a := x.op.Route()
	if err := x.parallel(a.Logits.Rows(), routeGrain(a.Logits.Cols()), routeRows); err != nil {
		return err
	}
	experts, places, offsets := i32(a.Experts), i32(a.Places), i32(a.Offsets)
	clear(offsets)
	for _, e := range experts {
		offsets[e+1]++
	}
	for e := 1; e < len(offsets); e++ {
		offsets[e] += offsets[e-1]
	}
	for i, e := range experts { // each offset runs to the end of its expert's rows, which is where the next one's begin
		places[i] = offsets[e]
		offsets[e]++
	}
	copy(offsets[1:], offsets)
	offsets[0] = 0
	return nil
}

// routeRows takes a range of rows.
func routeRows(x *exec, lo, hi int) {
	a := x.op.Route()
	scores, weights, experts, logits, bias := f32(a.Scores), f32(a.Weights), i32(a.Experts), f32(a.Logits), optional(a.Bias)
	k, width := a.Experts.Cols(), a.Logits.Cols()
	ranks := scratch(&x.rows, width)
	for n := lo; n < hi; n++ {
		row := scores[n*width:][:width]
		if a.Sigmoid {
			for e, l := range logits[n*width:][:width] {
				row[e] = float32(1 / (1 + math.Exp(-float64(l))))
			}
		} else {
			softmax(row, logits[n*width:][:width])
		}
		rank := row
		if bias != nil {
			rank = ranks
			x.dev.kernels.vec.Add(rank, row, bias)
		}
		chosen := experts[n*k:][:k]
		best(chosen, rank)
		slices.Sort(chosen)
		factor := a.Factor()
		if a.Renormalize {
			factor /= chosenSum(row, chosen)
		}
		for j, e := range chosen {
			weights[n*k+j] = float32(float64(row[e]) * factor)
		}
	}
}

// softmax of a row; dst may be logits.
func softmax(dst, logits []float32) {
	top := float32(math.Inf(-1))
	for _, l := range logits {
		top = max(top, l) // NaN if one of them is
	}
	sum := 0.0
	for e, l := range logits {
		v := math.Exp(float64(l) - float64(top))
		sum += v
		dst[e] = float32(v)
	}
	for e, v := range dst {
		dst[e] = float32(float64(v) / sum)
	}
}

// chosenSum is the sum of the scores of chosen experts, in ascending order.
func chosenSum(scores []float32, chosen []int32) (sum float64) {
	for _, e := range chosen {
		sum += float64(scores[e])
	}
	return sum
}

// best finds the largest ranks, the lower number first where they are equal, and NaN last.
func best(chosen []int32, rank []float32) {
	n := 0
	for e, r := range rank {
		at := n
		for at > 0 && before(r, rank[chosen[at-1]]) {
			at--
		}
		if at == len(chosen) {
			continue
		}
		n = min(n+1, len(chosen))
		copy(chosen[at+1:n], chosen[at:n])
		chosen[at] = int32(e)
	}
}

// before reports whether a rank comes before another one of a lower number.
func before(r, other float32) bool { return r > other || other != other && r == r }

// routeGrad takes a range of rows.
func routeGrad(x *exec, lo, hi int) {
	a := x.op.RouteGrad()
	dlogits, dweights, scores, experts, offsets := f32(a.DLogits), f32(a.DWeights), f32(a.Scores), i32(a.Experts), i32(a.Offsets)
	k, width := a.Experts.Cols(), a.Scores.Cols()
	for n := lo; n < hi; n++ {
		row, out, chosen, dw := scores[n*width:][:width], dlogits[n*width:][:width], experts[n*k:][:k], dweights[n*k:][:k]
		factor, mean := a.Factor(), 0.0
		if a.Renormalize {
			total := chosenSum(row, chosen)
			for j, e := range chosen {
				mean += float64(float64(dw[j]) * float64(row[e]))
			}
			factor, mean = factor/total, mean/total
		}
		of := func(e, j int) (d float64, next int) { // the gradient of a score
			d = float64(a.Balance * float64(offsets[e+1]-offsets[e]))
			if j < k && int(chosen[j]) == e {
				return d + float64(factor*(float64(dw[j])-mean)), j + 1
			}
			return d, j
		}
		var inner, d float64
		if !a.Sigmoid {
			for e, j := 0, 0; e < width; e++ {
				d, j = of(e, j)
				inner += float64(d * float64(row[e]))
			}
		}
		for e, j := 0, 0; e < width; e++ {
			d, j = of(e, j)
			s := float64(row[e])
			if a.Sigmoid {
				out[e] = float32(d * s * (1 - s))
			} else {
				out[e] = float32(s * (d - inner))
			}
		}
	}
}

// routeStats takes experts by ranges; their parts are added in order.
func (x *exec) routeStats() error {
	a := x.op.RouteStats()
	stats, width, rows := f64(a.Stats), a.Scores.Cols(), float64(a.Scores.Rows())
	x.partial = scratch(&x.partial, 2*width)
	if err := x.parallel(width, max(1, heavyGrain/4/max(a.Scores.Rows(), 1)), routeColumns); err != nil {
		return err
	}
	offsets := i32(a.Offsets)
	stats[tensorops.RouteRows] += rows
	for e := range width {
		count := float64(offsets[e+1] - offsets[e])
		stats[tensorops.RouteCounts+e] += count
		stats[tensorops.RouteEntropy] += x.partial[2*e+1]
		if rows > 0 {
			stats[tensorops.RouteBalance] += float64(float64(width) * count * x.partial[2*e] / rows)
		}
	}
	return nil
}

// routeColumns sums the scores of a range of experts and their parts of the entropy.
func routeColumns(x *exec, lo, hi int) {
	a := x.op.RouteStats()
	scores, width := f32(a.Scores), a.Scores.Cols()
	for e := lo; e < hi; e++ {
		sum, entropy := 0.0, 0.0
		for at := e; at < len(scores); at += width {
			s := float64(scores[at])
			sum += s
			if s > 0 {
				entropy -= float64(s * math.Log(s))
			}
		}
		x.partial[2*e], x.partial[2*e+1] = sum, entropy
	}
}
