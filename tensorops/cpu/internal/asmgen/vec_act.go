package main

import (
	"math"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// GELU's tanh form is x·σ(s(x)) with s = 2·√(2/π)·(x + 0.044715x³), because
// (1 + tanh z)/2 = σ(2z).
var (
	geluA = 2 * math.Sqrt(2/math.Pi)
	geluB = geluA * 0.044715
)

const geluDoc = `
y = x/(1 + e^(−s)), s = x·(A + B·x²).

Registers: x; u = −s and then 1 + e^u.`

const geluGradDoc = `
dx = dy·(σ + x·σ·(1 − σ)·(A + 3B·x²)), σ = 1/(1 + e^(−s)), s = x·(A + B·x²). The
complement 1 − σ is e^(−s)·σ, which loses nothing where σ is close to 1.

Registers: x; z = x² and then s's slope; u = −s and then e^u; s = σ; d, the
product.`

const swigluDoc = `
y = gate/(1 + e^(−gate))·up.

Registers: g = gate; u = −g and then 1 + e^u.`

const swigluGradDoc = `
dgate = dy·up·σ·(1 + gate·(1 − σ)), dup = dy·gate·σ, σ = 1/(1 + e^(−gate)). The
complement 1 − σ is e^(−gate)·σ, which loses nothing where σ is close to 1.

Registers: g = gate; u = −g and then e^u; s = σ; d = dy·σ.`

// logisticMax bounds the power of e of a logistic function, so that e^u·σ(−u) is
// not infinity times zero.
const logisticMax = 80

// logistic replaces u by e^u and returns 1/(1 + e^u).
func (e *exponential) logistic(a *isa, u reg.VecVirtual, one operand.Op) reg.VecVirtual {
	e.of(a, u)
	v, s := a.vec(), a.copy(one)
	a.VADDPS(one, u, v)
	a.VDIVPS(v, s, s)
	return s
}

func vecGELU(a *isa) {
	a.function("gelu", "(y, x []float32)", "stores GELU of x.")
	y, src, n := a.base("y"), a.base("x"), a.length("y")
	e, one := a.exponential(expMax), a.near(a.constant(1))
	negA, negB := a.near(a.constant(float32(-geluA))), a.near(a.constant(float32(-geluB)))
	a.each(n, func(at reg.Register, l lanes) {
		x := a.load(a.at(src, at), l)
		z, u := a.vec(), a.copy(negA)
		a.VMULPS(x, x, z)
		a.VFMADD231PS(negB, z, u)
		a.VMULPS(x, u, u)
		e.of(a, u)
		a.VADDPS(one, u, u)
		a.VDIVPS(u, x, x)
		a.store(x, a.at(y, at), l)
	})
	a.end()
}

func vecGELUGrad(a *isa) {
	a.function("geluGrad", "(dx, dy, x []float32)", "stores dy times the slope of GELU at x.")
	dx, dy, src, n := a.base("dx"), a.base("dy"), a.base("x"), a.length("dx")
	e, one := a.exponential(logisticMax), a.near(a.constant(1))
	negA, negB := a.near(a.constant(float32(-geluA))), a.near(a.constant(float32(-geluB)))
	slopeA, slopeB := a.near(a.constant(float32(geluA))), a.near(a.constant(float32(3*geluB)))
	a.each(n, func(at reg.Register, l lanes) {
		x := a.load(a.at(src, at), l)
		z, u := a.vec(), a.copy(negA)
		a.VMULPS(x, x, z)
		a.VFMADD231PS(negB, z, u)
		a.VMULPS(x, u, u)
		s, d := e.logistic(a, u, one), a.vec()
		a.VMULPS(s, u, d)
		a.VMULPS(s, d, d)
		a.VMULPS(x, d, d)
		slope := a.copy(slopeA)
		a.VFMADD231PS(slopeB, z, slope)
		a.VFMADD213PS(s, slope, d)
		a.VMULPS(a.load(a.at(dy, at), l), d, d)
		a.store(d, a.at(dx, at), l)
	})
	a.end()
}

func vecSwiGLU(a *isa) {
	a.function("swiglu", "(y, gate, up []float32)", "stores gate·σ(gate)·up.")
	y, gate, up, n := a.base("y"), a.base("gate"), a.base("up"), a.length("y")
	e, one, sign := a.exponential(expMax), a.near(a.constant(1)), a.near(a.bits(1<<31))
	a.each(n, func(at reg.Register, l lanes) {
		g, u := a.load(a.at(gate, at), l), a.vec()
		a.VXORPS(sign, g, u)
		e.of(a, u)
		a.VADDPS(one, u, u)
		a.VDIVPS(u, g, g)
		a.VMULPS(a.load(a.at(up, at), l), g, g)
		a.store(g, a.at(y, at), l)
	})
	a.end()
}

func vecSwiGLUGrad(a *isa) {
	a.function("swigluGrad", "(dgate, dup, dy, gate, up []float32)", "stores the gradients of both inputs.")
	dgate, dup, dy := a.base("dgate"), a.base("dup"), a.base("dy")
	gate, up, n := a.base("gate"), a.base("up"), a.length("dgate")
	e, one, sign := a.exponential(logisticMax), a.near(a.constant(1)), a.near(a.bits(1<<31))
	a.each(n, func(at reg.Register, l lanes) {
		g, u := a.load(a.at(gate, at), l), a.vec()
		a.VXORPS(sign, g, u)
		s, d := e.logistic(a, u, one), a.load(a.at(dy, at), l)
		a.VMULPS(s, d, d)
		a.VMULPS(s, u, u)
		a.VFMADD213PS(one, g, u)
		a.VMULPS(a.load(a.at(up, at), l), u, u)
		a.VMULPS(d, u, u)
		a.store(u, a.at(dgate, at), l)
		a.VMULPS(g, d, d)
		a.store(d, a.at(dup, at), l)
	})
	a.end()
}
