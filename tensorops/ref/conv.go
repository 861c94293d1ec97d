package ref

import "github.com/troupe-ml/troupe/tensorops"

// conv is a causal convolution: x is B sequences of T rows.
type conv struct {
	x, weight, state, starts tensorops.Tensor // state and starts may be none
	taps, positions          int
}

func convOf(x, weight, state tensorops.Tensor, o tensorops.ConvOpts) conv {
	return conv{x, weight, state, o.Starts, weight.Cols(), x.Rows() / o.Batch}
}

// input is channel c of row t of sequence b; before the first row it is the state's, or 0.
func (v conv) input(b, t, c int) float64 {
	switch {
	case t >= 0:
		return rowOf(v.x, b*v.positions+t)[c]
	case v.state.Valid():
		return Values(v.state)[(b*(v.taps-1)+v.taps-1+t)*v.x.Cols()+c]
	}
	return 0
}

// sees reports whether row t of sequence b reads row from.
func (v conv) sees(b, t, from int) bool {
	return !v.starts.Valid() || from >= min(startAt(v.starts, b*v.positions+t), t)
}

// sum is the convolution's s[t].
func (v conv) sum(b, t, c int) (sum float64) {
	for k, w := range row(Values(v.weight), c, v.taps) {
		if from := t - v.taps + 1 + k; v.sees(b, t, from) {
			sum += w * v.input(b, from, c)
		}
	}
	return sum
}

// causalConv: y[t] = SiLU(Σ w[k]·x[t−K+1+k]); the state becomes the last K−1 rows.
func causalConv(op *tensorops.Op) {
	a := op.CausalConv()
	v, c := convOf(a.X, a.Weight, a.State, a.ConvOpts), a.X.Cols()
	y := make([]float64, a.Y.Len())
	for b := range a.Batch {
		for t := range v.positions {
			for j := range c {
				y[(b*v.positions+t)*c+j], _ = activated(tensorops.SiLU, v.sum(b, t, j))
			}
		}
	}
	if a.State.Valid() {
		state := make([]float64, a.State.Len())
		for i := range state {
			b, t := i/c/(v.taps-1), i/c%(v.taps-1)
			state[i] = v.input(b, v.positions-v.taps+1+t, i%c)
		}
		Set(a.State, state)
	}
	copy(Values(a.Y), y)
}

// convGrad is ds[t] = dy[t]·SiLU′(s[t]).
func (v conv) grad(dy tensorops.Tensor, b, t, c int) float64 {
	_, slope := activated(tensorops.SiLU, v.sum(b, t, c))
	return rowOf(dy, b*v.positions+t)[c] * slope
}

// causalConvGrad: dx[t] = Σ w[k]·ds[t+K−1−k].
func causalConvGrad(op *tensorops.Op) {
	a := op.CausalConvGrad()
	v := convOf(a.X, a.Weight, tensorops.Tensor{}, a.ConvOpts)
	for b := range a.Batch {
		for t := range v.positions {
			dx := rowOf(a.DX, b*v.positions+t)
			for c := range dx {
				dx[c] = 0
				for k, w := range row(Values(a.Weight), c, v.taps) {
					if after := t + v.taps - 1 - k; after < v.positions && v.sees(b, after, t) {
						dx[c] += w * v.grad(a.DY, b, after, c)
					}
				}
			}
		}
	}
}

// causalConvWeightGrad: dw[k] += Σ ds[t]·x[t−K+1+k].
func causalConvWeightGrad(op *tensorops.Op) {
	a := op.CausalConvWeightGrad()
	v := convOf(a.X, a.Weight, tensorops.Tensor{}, a.ConvOpts)
	for b := range a.Batch {
		for t := range v.positions {
			for c := range a.X.Cols() {
				ds := v.grad(a.DY, b, t, c)
				for k := range v.taps {
					if from := t - v.taps + 1 + k; v.sees(b, t, from) {
						Values(a.DWeight)[c*v.taps+k] += ds * v.input(b, from, c)
					}
				}
			}
		}
	}
}
