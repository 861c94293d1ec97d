package vec

// These are loops over norms' kernels: a norm with a mean of 0 multiplies, and adds where it has a beta.

// onesLen is the number of factors that are 1: longer slices are taken in parts.
const onesLen = 1024

var ones = func() (o [onesLen]float32) {
	for i := range o {
		o[i] = 1
	}
	return o
}()

// Mul stores x·w.
func (k *Kernels) Mul(y, x, w []float32) { k.normalise(y, x[:len(y)], w[:len(y)], 0, 1) }

// MulPlus stores x·w + add.
func (k *Kernels) MulPlus(y, x, w, add []float32) {
	n := len(y)
	k.normaliseAdd(y, x[:n], w[:n], add[:n], 0, 1)
}

// Scaled stores x·f.
func (k *Kernels) Scaled(y, x []float32, f float32) {
	for len(y) > onesLen {
		k.normalise(y[:onesLen], x[:onesLen], ones[:], 0, f)
		y, x = y[onesLen:], x[onesLen:]
	}
	k.normalise(y, x[:len(y)], ones[:len(y)], 0, f)
}

// ScaledPlus stores x·f + add.
func (k *Kernels) ScaledPlus(y, x []float32, f float32, add []float32) {
	for len(y) > onesLen {
		k.normaliseAdd(y[:onesLen], x[:onesLen], ones[:], add[:onesLen], 0, f)
		y, x, add = y[onesLen:], x[onesLen:], add[onesLen:]
	}
	n := len(y)
	k.normaliseAdd(y, x[:n], ones[:n], add[:n], 0, f)
}

// Dot returns Σ a·b of at most 1024 elements.
func (k *Kernels) Dot(a, b []float32) float32 {
	_, dot := k.normSums(a, b[:len(a)], ones[:len(a)], 0)
	return dot
}

// SiLU stores x·σ(x) of at most 1024 elements, and SiLUGrad dy times its derivative at x; spare is
// overwritten.
func (k *Kernels) SiLU(y, x []float32) { k.swiglu(y, x[:len(y)], ones[:len(y)]) }

// SiLUGrad stores dy·SiLU′(x) of at most 1024 elements; spare is overwritten.
func (k *Kernels) SiLUGrad(dx, dy, x, spare []float32) {
	n := len(dx)
	k.swigluGrad(dx, spare[:n], dy[:n], x[:n], ones[:n])
}
