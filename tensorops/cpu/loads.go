package cpu

import "github.com/troupe-ml/troupe/tensorops"

// balanceLoads takes ranges of rows, and adds their losses in order.
func (x *exec) balanceLoads() error {
	a := x.op.BalanceLoads()
	rows, width, loads, total := a.Scores.Rows(), a.Scores.Cols(), f32(a.Loads), 0.0
	for _, n := range loads {
		total += float64(n)
	}
	x.partial = scratch(&x.partial, width+rows)
	for e, n := range loads {
		if x.partial[e] = 0; total > 0 {
			x.partial[e] = float64(width) * float64(a.Experts.Cols()) * float64(n) / total
		}
	}
	if err := x.parallel(rows, routeGrain(width), balanceRows); err != nil {
		return err
	}
	if a.Sum.Valid() {
		sum := f64(a.Sum)
		for _, loss := range x.partial[width:][:rows] {
			sum[0] += loss
		}
	}
	return nil
}

// balanceRows takes a range of rows. partial has the gradient of each expert's shares, and gets the loss of each row.
func balanceRows(x *exec, lo, hi int) {
	a := x.op.BalanceLoads()
	width, experts, k := a.Scores.Cols(), i32(a.Experts), a.Experts.Cols()
	dlogits, scores, of, losses := f32(a.DLogits), f32(a.Scores), x.partial[:width], x.partial[width:]
	for n := lo; n < hi; n++ {
		if losses[n] = 0; experts[n*k] < 0 {
			continue
		}
		row, out := scores[n*width:][:width], dlogits[n*width:][:width]
		sum, mean := 1.0, 0.0
		if a.Sigmoid {
			sum = tensorops.SigmoidFloor
			for _, s := range row {
				sum += float64(s)
			}
		}
		for e, s := range row {
			mean += float64(of[e] * float64(s))
		}
		mean /= sum
		losses[n] = mean
		for e, v := range row {
			s := float64(v)
			d := a.Weight * s * (of[e] - mean)
			if a.Sigmoid {
				d *= (1 - s) / sum
			}
			out[e] = float32(float64(out[e]) + float64(d))
		}
	}
}
