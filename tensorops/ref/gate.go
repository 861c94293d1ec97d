package ref

import (
	"math"

	"github.com/troupe-ml/troupe/tensorops"
)

// normalCDF is Φ, the standard normal distribution function, and normalDensity its slope.
func normalCDF(x float64) float64     { return math.Erfc(-x/math.Sqrt2) / 2 }
func normalDensity(x float64) float64 { return math.Exp(-x*x/2) / math.Sqrt(2*math.Pi) }

// activated is an activation of x and its slope there.
func activated(act tensorops.Activation, x float64) (y, slope float64) {
	s := sigmoid(x)
	switch act {
	case tensorops.SiLU:
		return x * s, s * (1 + x*(1-s))
	case tensorops.TanhGELU:
		t := math.Tanh(geluInner(x))
		return x / 2 * (1 + t), (1+t)/2 + x/2*(1-t*t)*geluInnerSlope(x)
	case tensorops.ExactGELU:
		return x * normalCDF(x), normalCDF(x) + x*normalDensity(x)
	case tensorops.ReLU2:
		x = max(x, 0)
		return x * x, 2 * x
	case tensorops.Sigmoid:
		return s, s * (1 - s)
	}
	panic("ref: " + act.String() + " has no form without a gate")
}

// gated is y = act(gate)·up with its slopes by gate and by up. The clamped SwiGLU is g·σ(alpha·g)·(u + 1), where g is gate up
// to the limit and u is up within ±limit: beyond it the slope is 0.
func gated(o tensorops.GateOpts, gate, up float64) (y, byGate, byUp float64) {
	if o.Act != tensorops.ClampedSwiGLU {
		v, slope := activated(o.Act, gate)
		return v * up, slope * up, v
	}
	g, u := min(gate, o.Limit), min(max(up, -o.Limit), o.Limit)
	s := sigmoid(o.Alpha * g)
	y, byGate, byUp = g*s*(u+1), s*(1+o.Alpha*g*(1-s))*(u+1), g*s
	if gate > o.Limit {
		byGate = 0
	}
	if math.Abs(up) > o.Limit {
		byUp = 0
	}
	return y, byGate, byUp
}

func gate(op *tensorops.Op) {
	a := op.Gate()
	y, gate, up := Values(a.Y), Values(a.Gate), Values(a.Up)
	for i, g := range gate {
		y[i], _, _ = gated(a.GateOpts, g, up[i])
	}
}

func gateGrad(op *tensorops.Op) {
	a := op.GateGrad()
	dgate, dup, dy := Values(a.DGate), Values(a.DUp), Values(a.DY)
	gate, up := Values(a.Gate), Values(a.Up)
	for i, g := range gate {
		_, byGate, byUp := gated(a.GateOpts, g, up[i])
		d := dy[i]
		dgate[i], dup[i] = d*byGate, d*byUp
	}
}

func act(op *tensorops.Op) {
	a := op.Act()
	y, x := Values(a.Y), Values(a.X)
	for i, v := range x {
		y[i], _ = activated(a.Act, v)
	}
}

func actGrad(op *tensorops.Op) {
	a := op.ActGrad()
	dx, dy, x := Values(a.DX), Values(a.DY), Values(a.X)
	for i, v := range x {
		_, slope := activated(a.Act, v)
		dx[i] = dy[i] * slope
	}
}

// softCap: y = limit·tanh(x/limit).
func softCap(op *tensorops.Op) {
	a := op.SoftCap()
	y, x := Values(a.Y), Values(a.X)
	for i, v := range x {
		y[i] = a.Limit * math.Tanh(v/a.Limit)
	}
}

// softCapGrad: dx = dy·(1 − tanh²(x/limit)).
func softCapGrad(op *tensorops.Op) {
	a := op.SoftCapGrad()
	dx, dy, x := Values(a.DX), Values(a.DY), Values(a.X)
	for i, v := range x {
		t := math.Tanh(v / a.Limit)
		dx[i] = dy[i] * (1 - t*t)
	}
}

// addScaledTo: y = skip + factor·x.
func addScaledTo(op *tensorops.Op) {
	a := op.AddScaled()
	y, x := Values(a.Y), Values(a.X)
	for i, v := range x {
		y[i] = a.Factor*v + skipped(a.Skip, i)
	}
}
