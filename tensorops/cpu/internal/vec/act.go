package vec

import "math"

// GELU's tanh form is x·σ(s(x)) with s = 2·√(2/π)·(x + 0.044715x³), because
// (1 + tanh z)/2 = σ(2z).
const (
	geluA = 2 * math.Sqrt2 / (math.SqrtPi) // 2·√(2/π)
	geluB = geluA * 0.044715
)

// GELU stores the tanh form of Hendrycks and Gimpel's unit.
func (k *Kernels) GELU(y, x []float32) { k.gelu(y, x[:len(y)]) }

// GELUGrad stores dy times the slope of GELU at x.
func (k *Kernels) GELUGrad(dx, dy, x []float32) { k.geluGrad(dx, dy[:len(dx)], x[:len(dx)]) }

// SwiGLU stores gate·σ(gate)·up.
func (k *Kernels) SwiGLU(y, gate, up []float32) { k.swiglu(y, gate[:len(y)], up[:len(y)]) }

// SwiGLUGrad stores the gradients of both inputs.
func (k *Kernels) SwiGLUGrad(dgate, dup, dy, gate, up []float32) {
	n := len(dgate)
	k.swigluGrad(dgate, dup[:n], dy[:n], gate[:n], up[:n])
}

func geluGo(y, x []float32) {
	for i, v := range x {
		y[i] = v / (1 + exp32(v*(-geluA-geluB*(v*v))))
	}
}

// logistic returns e = e^u and 1/(1 + e), for u up to a bound below which their
// product is not infinity times zero.
func logistic(u float32) (e, s float32) {
	const bound = 80
	if u > bound {
		u = bound
	}
	e = exp32(u)
	return e, 1 / (1 + e)
}

func geluGradGo(dx, dy, x []float32) {
	for i, v := range x {
		z := v * v
		e, s := logistic(v * (-geluA - geluB*z))
		dx[i] = dy[i] * (v*(e*s*s)*(geluA+3*geluB*z) + s)
	}
}

func swigluGo(y, gate, up []float32) {
	for i, g := range gate {
		y[i] = g / (1 + exp32(-g)) * up[i]
	}
}

func swigluGradGo(dgate, dup, dy, gate, up []float32) {
	for i, g := range gate {
		e, s := logistic(-g)
		d := dy[i] * s
		dgate[i] = d * ((g*(e*s) + 1) * up[i])
		dup[i] = d * g
	}
}
