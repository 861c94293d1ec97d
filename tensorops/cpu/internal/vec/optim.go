package vec

import "math"

// AdamW are the numbers of one step of AdamW.
type AdamW struct {
	Beta1, Beta2 float64
	Keep         float64 // 1 − rate·weight decay
	Rate         float64 // of the step, with the first moment's bias correction
	Root         float64 // the second's: 1/√(1 − Beta2^step)
	Eps          float64
	Scale        float64 // of the gradient
	Clear        bool    // leave zeros for the gradient
}

// AdamW moves weights w by the gradient g and its moments m and v.
func (k *Kernels) AdamW(w, m, v, g []float32, a AdamW) {
	n := len(w)
	k.adamW(w, m[:n], v[:n], g[:n],
		float32(a.Beta1), float32(1-a.Beta1), float32(a.Beta2), float32(1-a.Beta2),
		float32(a.Keep), float32(a.Rate), float32(a.Root), float32(a.Eps), float32(a.Scale), a.Clear)
}

// SGD moves weights w by d = scale·g + decay·w: w −= rate·d; or, where m is not
// nil, m = momentum·m + d and w −= rate·m.
func (k *Kernels) SGD(w, m, g []float32, rate, momentum, decay, scale float32) {
	n := len(w)
	if m == nil {
		k.sgd(w, g[:n], rate, decay, scale)
		return
	}
	k.sgdMomentum(w, m[:n], g[:n], rate, momentum, decay, scale)
}

func adamWGo(w, m, v, g []float32, b1, nb1, b2, nb2, keep, rate, root, eps, scale float32, clr bool) {
	for i, gi := range g {
		gi *= scale
		mi := b1*m[i] + float32(nb1*gi)
		vi := b2*v[i] + float32(nb2*gi*gi)
		m[i], v[i] = mi, vi
		w[i] = keep*w[i] - float32(rate*mi/(float32(math.Sqrt(float64(vi)))*root+eps))
	}
	if clr {
		clear(g)
	}
}

func sgdGo(w, g []float32, rate, decay, scale float32) {
	for i, gi := range g {
		w[i] -= rate * (decay*w[i] + float32(gi*scale))
	}
}

func sgdMomentumGo(w, m, g []float32, rate, momentum, decay, scale float32) {
	for i, gi := range g {
		m[i] = momentum*m[i] + (decay*w[i] + float32(gi*scale))
		w[i] -= rate * m[i]
	}
}
