package ref

import (
	"math"

	"github.com/troupe-ml/troupe/tensorops"
)

// squaredNorm: out = Σ x².
func squaredNorm(op *tensorops.Op) {
	a := op.SquaredNorm()
	var sum float64
	for _, v := range Values(a.X) {
		sum += v * v
	}
	Values(a.Out)[0] = sum
}

// adamW: m and v are running means of g and g²; m̂ and v̂ undo their start at 0;
// w −= lr·(decay·w + m̂/(√v̂ + eps)).
func adamW(op *tensorops.Op) {
	a := op.AdamW()
	w, m, v, grad := Values(a.W), Values(a.M), Values(a.V), Values(a.G)
	beta1, beta2, step := a.Beta1, a.Beta2, float64(a.Step)
	for i := range w {
		g := grad[i] * a.GradScale
		m[i] = beta1*m[i] + (1-beta1)*g
		v[i] = beta2*v[i] + (1-beta2)*g*g
		mHat := m[i] / (1 - math.Pow(beta1, step))
		vHat := v[i] / (1 - math.Pow(beta2, step))
		w[i] -= a.LR * (a.WeightDecay*w[i] + mHat/(math.Sqrt(vHat)+a.Eps))
		if a.ClearGrad {
			grad[i] = 0
		}
	}
	copyWeight(a.Copy, w)
}

// copyWeight is what an update leaves for products of bfloat16; it is rounded as all that is
// written into such a tensor.
func copyWeight(to tensorops.Tensor, w []float64) {
	if to.Valid() {
		copy(Values(to), w)
	}
}

// sgd: d = g + decay·w; with momentum d = m = momentum·m + d; w −= lr·d.
func sgd(op *tensorops.Op) {
	a := op.SGD()
	w, grad := Values(a.W), Values(a.G)
	for i := range w {
		d := grad[i]*a.GradScale + a.WeightDecay*w[i]
		if a.M.Valid() {
			m := Values(a.M)
			m[i] = a.Momentum*m[i] + d
			d = m[i]
		}
		w[i] -= a.LR * d
	}
	copyWeight(a.Copy, w)
}
