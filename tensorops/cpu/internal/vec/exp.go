package vec

import "math"

// Exp stores e to the power of src.
func (k *Kernels) Exp(dst, src []float32) { k.exp(dst, src[:len(dst)]) }

// Tanh stores the hyperbolic tangent of src.
func (k *Kernels) Tanh(dst, src []float32) { k.tanh(dst, src[:len(dst)]) }

func expGo(dst, src []float32) {
	for i, x := range src {
		dst[i] = exp32(x)
	}
}

// exp32 is e^x; the assembly says how.
func exp32(x float32) float32 {
	const (
		lo, hi = -87.5, 89 // 0 below; infinite from 88.73 on
		ln2hi  = 0.693359375
		ln2lo  = -2.12194440e-4
		magic  = 1.5*(1<<23) + 126
	)
	if x < lo {
		x = lo
	}
	if x > hi {
		x = hi
	}
	t := float32(x*math.Log2E) + magic
	n := t - magic
	r := x - float32(n*ln2hi)
	r -= float32(n * ln2lo)
	p := float32(2 * 0.001381459856)
	p = p*r + 2*0.008368716879
	p = p*r + 2*0.04166838805
	p = p*r + 2*0.1666652063
	p = p*r + 2*0.4999999345
	p = p*r + 2
	p = p*r + 2
	return p * math.Float32frombits(math.Float32bits(t)<<23)
}

func tanhGo(dst, src []float32) {
	for i, x := range src {
		dst[i] = tanh32(x)
	}
}

// tanh32 is tanh x; the assembly says how.
func tanh32(x float32) float32 {
	if x < 0.55 && x > -0.55 {
		z := x * x
		p := float32(-0.006274239722)
		p = p*z + 0.02107167917
		p = p*z - 0.05385230993
		p = p*z + 0.1333258614
		p = p*z - 0.3333331756
		return x*z*p + x
	}
	const sign = 1 << 31
	b := math.Float32bits(x)
	a := math.Float32frombits(b &^ sign)
	t := 1 - 2/(exp32(2*a)+1)
	return math.Float32frombits(math.Float32bits(t) | b&sign)
}
