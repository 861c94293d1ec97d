package vec

import "math"

// gateLoop and gateGradLoop are the loops of one function of a gate.
type (
	gateLoop     func(y, gate, up []float32)
	gateGradLoop func(dgate, dup, dy, gate, up []float32)
)

// GateFunc is a function f of a gate, in y = f(gate)·up.
type GateFunc uint8

// The functions. SiLU's gate is SwiGLU.
const (
	TanhGELU GateFunc = iota
	ExactGELU
	ReLU2
	Sigmoid
	numGates
)

// Gate stores f(gate)·up.
func (k *Kernels) Gate(f GateFunc, y, gate, up []float32) {
	k.gates[f](y, gate[:len(y)], up[:len(y)])
}

// GateGrad stores the gradients of both inputs.
func (k *Kernels) GateGrad(f GateFunc, dgate, dup, dy, gate, up []float32) {
	n := len(dgate)
	k.gateGrads[f](dgate, dup[:n], dy[:n], gate[:n], up[:n])
}

// ClampedGate stores g·σ(alpha·g)·(u + 1), where g is gate up to the limit and u is up within ±limit.
func (k *Kernels) ClampedGate(y, gate, up []float32, limit, alpha float32) {
	k.gateClamped(y, gate[:len(y)], up[:len(y)], limit, alpha)
}

// ClampedGateGrad stores the gradients of both inputs, 0 where they were cut.
func (k *Kernels) ClampedGateGrad(dgate, dup, dy, gate, up []float32, limit, alpha float32) {
	n := len(dgate)
	k.gateClampedGrad(dgate, dup[:n], dy[:n], gate[:n], up[:n], limit, alpha)
}

// SoftCap stores limit·tanh(x/limit).
func (k *Kernels) SoftCap(y, x []float32, limit float64) {
	k.softCap(y, x[:len(y)], float32(limit), float32(1/limit))
}

// SoftCapGrad stores dy·(1 − tanh²(x/limit)).
func (k *Kernels) SoftCapGrad(dx, dy, x []float32, limit float64) {
	k.softCapGrad(dx, dy[:len(dx)], x[:len(dx)], float32(1/limit))
}

// goGates are the functions of the path that every processor can run, with their slopes.
var goGates = [numGates]func(g float32) (v, slope float32){tanhGELU32, exactGELU32, relu2, sigmoid32}

func goGateLoops() (loops [numGates]gateLoop) {
	for i, f := range goGates {
		loops[i] = func(y, gate, up []float32) {
			for i, g := range gate {
				v, _ := f(g)
				y[i] = v * up[i]
			}
		}
	}
	return loops
}

func goGateGradLoops() (loops [numGates]gateGradLoop) {
	for i, f := range goGates {
		loops[i] = func(dgate, dup, dy, gate, up []float32) {
			for i, g := range gate {
				v, slope := f(g)
				d := dy[i]
				dgate[i], dup[i] = slope*(d*up[i]), v*d
			}
		}
	}
	return loops
}

func tanhGELU32(x float32) (v, slope float32) {
	z := x * x
	e, s := logistic(x * (-geluA - geluB*z))
	return x * s, x*(e*s*s)*(geluA+3*geluB*z) + s
}

func relu2(x float32) (v, slope float32) {
	if x < 0 { // a NaN stays one
		x = 0
	}
	return x * x, x + x
}

func sigmoid32(x float32) (v, slope float32) {
	e, s := logistic(-x)
	return s, e * s * s
}

// Φ(−a) = e^(−a²/2)·t·P(t) with t = 1/(1 + normalP·a); the coefficients of P, of t⁰ first, have the least error of a·Φ(−a).
const normalP = 0.3

var normalCoefficients = [...]float32{0.12105560333, 0.10661403025, 0.15930324087, -0.0083581835239, 0.13336576361, 0.054972236759,
	-0.090006583574, 0.023053893515}

// exactGELU32 is x·Φ(x) and Φ(x) + x·φ(x).
func exactGELU32(x float32) (v, slope float32) {
	w := exp32(-0.5 * (x * x))
	t := 1 / (1 + normalP*math.Float32frombits(math.Float32bits(x)&(1<<31-1)))
	last := len(normalCoefficients) - 1
	q := normalCoefficients[last]
	for i := last - 1; i >= 0; i-- {
		q = q*t + normalCoefficients[i]
	}
	q = q * t * w
	if !(x < 0) {
		q = 1 - q
	}
	const density = 0.3989422804014327 // 1/√(2π)
	return x * q, x*w*density + q
}

func clampedGateGo(y, gate, up []float32, limit, alpha float32) {
	for i, g := range gate {
		g, u := clamp(g, up[i], limit)
		y[i] = g / (1 + exp32(-alpha*g)) * (u + 1)
	}
}

func clampedGateGradGo(dgate, dup, dy, gate, up []float32, limit, alpha float32) {
	for i, at := range gate {
		g, u := clamp(at, up[i], limit)
		e, s := logistic(-alpha * g)
		d := dy[i]
		byGate, byUp := (alpha*(e*s*g)+1)*s*d*(u+1), g*s*d
		if at > limit {
			byGate = 0
		}
		if up[i] > limit || up[i] < -limit {
			byUp = 0
		}
		dgate[i], dup[i] = byGate, byUp
	}
}

// clamp is gate up to a limit, and up within it on both sides. A NaN stays one.
func clamp(gate, up, limit float32) (g, u float32) {
	if gate > limit {
		gate = limit
	}
	switch {
	case up > limit:
		up = limit
	case up < -limit:
		up = -limit
	}
	return gate, up
}

func softCapGo(y, x []float32, limit, inverse float32) {
	for i, v := range x {
		y[i] = limit * tanh32(v*inverse)
	}
}

func softCapGradGo(dx, dy, x []float32, inverse float32) {
	for i, v := range x {
		t := tanh32(v * inverse)
		dx[i] = dy[i] * (1 - t*t)
	}
}
