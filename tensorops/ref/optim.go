package ref

import (
	"math"

	"github.com/troupe-ml/troupe/tensorops"
)

// squaredNorm: out = Σ x².
func squaredNorm(op *tensorops.Op) {
	var sum float64
	for _, v := range Values(op.T[1]) {
		sum += v * v
	}
	Values(op.T[0])[0] = sum
}

// adamW: m and v are running means of g and g²; m̂ and v̂ undo their start at 0;
// w −= lr·(decay·w + m̂/(√v̂ + eps)).
func adamW(op *tensorops.Op) {
	w, m, v, grad := Values(op.T[0]), Values(op.T[1]), Values(op.T[2]), Values(op.T[3])
	lr, beta1, beta2, eps, decay, scale := op.F[0], op.F[1], op.F[2], op.F[3], op.F[4], op.F[5]
	step := float64(op.I[0])
	for i := range w {
		g := grad[i] * scale
		m[i] = beta1*m[i] + (1-beta1)*g
		v[i] = beta2*v[i] + (1-beta2)*g*g
		mHat := m[i] / (1 - math.Pow(beta1, step))
		vHat := v[i] / (1 - math.Pow(beta2, step))
		w[i] -= lr * (decay*w[i] + mHat/(math.Sqrt(vHat)+eps))
		if op.Has(tensorops.FlagClear) {
			grad[i] = 0
		}
	}
}

// sgd: d = g + decay·w; with momentum d = m = momentum·m + d; w −= lr·d.
func sgd(op *tensorops.Op) {
	w, momenta, grad := Values(op.T[0]), op.T[1], Values(op.T[2])
	lr, momentum, decay, scale := op.F[0], op.F[1], op.F[2], op.F[3]
	for i := range w {
		d := grad[i]*scale + decay*w[i]
		if momenta.Valid() {
			m := Values(momenta)
			m[i] = momentum*m[i] + d
			d = m[i]
		}
		w[i] -= lr * d
	}
}
