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
				row[e] = float32(sigmoid(l))
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
		if a.Groups > 0 {
			x.bestInGroups(chosen, rank, a.Groups, a.TopGroups)
		} else {
			best(chosen, rank)
		}
		slices.Sort(chosen)
		factor := a.Factor()
		if a.Renormalize {
			factor /= chosenSum(row, chosen, a.Sigmoid)
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

// bestInGroups is best among the experts of the best groups.
func (x *exec) bestInGroups(chosen []int32, rank []float32, groups, top int) {
	size := len(rank) / groups
	work, kept := scratch(&x.groups, groups+top*size), scratch(&x.numbers, top)
	sums, only := work[:groups], work[groups:]
	for g := range sums {
		var two [2]int32
		of := rank[g*size:][:size]
		best(two[:], of)
		sums[g] = of[two[0]] + of[two[1]]
	}
	best(kept, sums)
	slices.Sort(kept)
	for i, g := range kept {
		copy(only[i*size:][:size], rank[int(g)*size:])
	}
	best(chosen, only)
	for i, c := range chosen {
		chosen[i] = kept[int(c)/size]*int32(size) + c%int32(size)
	}
}

// chosenSum is the sum of the scores of chosen experts, in ascending order.
func chosenSum(scores []float32, chosen []int32, sigmoids bool) (sum float64) {
	if sigmoids {
		sum = tensorops.SigmoidFloor
	}
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
	dlogits, dweights, scores, logits := f32(a.DLogits), f32(a.DWeights), f32(a.Scores), optional(a.Logits)
	experts, k, width := i32(a.Experts), a.Experts.Cols(), a.Scores.Cols()
	counts := routeCounts{x: x, experts: experts, all: optional(a.Loads), width: width,
		of: max(1, a.Scores.Rows()/max(a.Sequences, 1)) * k, run: -1}
	for n := lo; n < hi; n++ {
		row, out, chosen, dw := scores[n*width:][:width], dlogits[n*width:][:width], experts[n*k:][:k], dweights[n*k:][:k]
		if chosen[0] < 0 {
			clear(out)
			continue
		}
		loads := counts.ofRun(n * k / counts.of)
		factor, mean := a.Factor(), 0.0
		if a.Renormalize {
			total := chosenSum(row, chosen, a.Sigmoid)
			for j, e := range chosen {
				mean += float64(float64(dw[j]) * float64(row[e]))
			}
			factor, mean = factor/total, mean/total
		}
		share, level := 1.0, 0.0 // what the gradient of a share is divided by, and what it has less: of sigmoids
		if a.Sigmoid && a.Balance != 0 {
			share, level = shareOf(row, loads)
		}
		of := func(e, j int) (d float64, next int) { // the gradient of a score
			d = float64(a.Balance * (float64(loads[e]) - level) / share)
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
		var z, lse float64
		if logits != nil {
			lse = logSum(logits[n*width:][:width])
			z = 2 * a.ZLoss * lse
		}
		for e, j := 0, 0; e < width; e++ {
			d, j = of(e, j)
			s := float64(row[e])
			if a.Sigmoid {
				d = d * s * (1 - s)
			} else {
				d = s * (d - inner)
			}
			if logits != nil {
				d += float64(z * math.Exp(float64(logits[n*width+e])-lse))
			}
			out[e] = float32(d)
		}
	}
}

// shareOf returns the sum of a row's sigmoids, and the mean load of their shares.
func shareOf(row []float32, loads []int32) (sum, level float64) {
	sum = tensorops.SigmoidFloor
	for e, s := range row {
		sum += float64(s)
		level += float64(float64(loads[e]) * float64(s))
	}
	return sum, level / sum
}

// logSum is the logarithm of the sum of a row's exponentials.
func logSum(logits []float32) float64 {
	top := float32(math.Inf(-1))
	for _, l := range logits {
		top = max(top, l)
	}
	sum := 0.0
	for _, l := range logits {
		sum += math.Exp(float64(l) - float64(top))
	}
	return float64(top) + math.Log(sum)
}

// routeCounts are the rows of each expert in a sequence. They are counted again for each sequence of a range.
type routeCounts struct {
	x         *exec
	experts   []int32
	all       []float32 // of all sequences, with the rows of other ranks; nil: they are counted
	width, of int       // experts; pairs of a sequence
	run       int       // the sequence that is counted; -1: none
	loads     []int32
}

// ofRun returns those of a sequence.
func (c *routeCounts) ofRun(run int) []int32 {
	if run == c.run {
		return c.loads
	}
	c.run, c.loads = run, scratch(&c.x.loads, c.width)
	clear(c.loads)
	if c.all != nil {
		for e, n := range c.all[run*c.width:][:c.width] {
			c.loads[e] = int32(n)
		}
		return c.loads
	}
	for _, e := range c.experts[run*c.of:][:c.of] {
		if e >= 0 {
			c.loads[e]++
		}
	}
	return c.loads
}

// routeStats takes experts by ranges; their parts are added in order.
func (x *exec) routeStats() error {
	a := x.op.RouteStats()
	stats, width, rows, runs := f64(a.Stats), a.Scores.Cols(), a.Scores.Rows(), max(a.Sequences, 1)
	x.partial = scratch(&x.partial, width*(1+runs)+rows)
	if err := x.parallel(rows, routeGrain(width), routeSums); err != nil {
		return err
	}
	if err := x.parallel(width, max(1, heavyGrain/4/max(rows, 1)), routeColumns); err != nil {
		return err
	}
	experts, k := i32(a.Experts), a.Experts.Cols()
	for _, e := range experts {
		if e >= 0 {
			stats[tensorops.RouteCounts+e]++
		}
	}
	for e := range width {
		stats[tensorops.RouteEntropy] += x.partial[rows+e]
	}
	counts := routeCounts{x: x, experts: experts, all: optional(a.Loads), width: width, of: rows / runs * k, run: -1}
	for run := range runs {
		loads, pairs := counts.ofRun(run), 0
		for _, n := range loads {
			pairs += int(n)
		}
		if pairs == 0 {
			continue
		}
		of := float64(pairs) / float64(k) // rows of the run, on all ranks
		for e, sum := range x.partial[rows+width*(1+run):][:width] {
			stats[tensorops.RouteBalance] += float64(float64(width) * float64(loads[e]) * sum / of)
		}
	}
	logits := optional(a.Logits)
	for n := range rows {
		if experts[n*k] < 0 {
			continue
		}
		stats[tensorops.RouteRows]++
		if logits != nil {
			lse := logSum(logits[n*width:][:width])
			stats[tensorops.RouteZ] += float64(lse * lse)
		}
	}
	return nil
}

// routeSums leaves what the scores of a range of rows are divided by to be shares: 0 of rows that are left out.
func routeSums(x *exec, lo, hi int) {
	a := x.op.RouteStats()
	scores, width, experts, k := f32(a.Scores), a.Scores.Cols(), i32(a.Experts), a.Experts.Cols()
	for n := lo; n < hi; n++ {
		x.partial[n] = 1
		switch {
		case experts[n*k] < 0:
			x.partial[n] = math.Inf(1)
		case a.Sigmoid:
			x.partial[n] = tensorops.SigmoidFloor
			for _, s := range scores[n*width:][:width] {
				x.partial[n] += float64(s)
			}
		}
	}
}

// routeColumns sums the shares of a range of experts in each sequence, and their parts of the entropy.
func routeColumns(x *exec, lo, hi int) {
	a := x.op.RouteStats()
	scores, width, rows, runs := f32(a.Scores), a.Scores.Cols(), a.Scores.Rows(), max(a.Sequences, 1)
	entropies, sums := x.partial[rows:][:width], x.partial[rows+width:]
	for e := lo; e < hi; e++ {
		entropy := 0.0
		for run := range runs {
			sum := 0.0
			for n := run * rows / runs; n < (run+1)*rows/runs; n++ {
				s := float64(scores[n*width+e]) / x.partial[n]
				sum += s
				if s > 0 {
					entropy -= float64(s * math.Log(s))
				}
			}
			sums[run*width+e] = sum
		}
		entropies[e] = entropy
	}
}
