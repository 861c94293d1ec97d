package main

import (
	"math"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const gateDoc = `
y = f(gate)·up, with f the tanh form of GELU, its exact form, the squared ReLU and σ.

The exact GELU is x·Φ(x). With a = |x| and t = 1/(1 + p·a), Φ(−a) is e^(−a²/2)·t·P(t), P of degree 7; above 0, Φ is
1 − Φ(−x).

The clamped SwiGLU is g·σ(alpha·g)·(u + 1), with g = min(gate, limit) and u = up within ±limit.

Registers: g, the gate; v, f(g); of the tanh form those of gelu; of the exact form t, q = Φ(−a), w = e^(−a²/2).`

const gateGradDoc = `
dgate = dy·up·f′(gate), dup = dy·f(gate): see gate. Both are 0 where the clamped SwiGLU has cut its input.

Registers: g, the gate; v, f(g); d, f′(g); of the tanh form those of gelu_grad; those of gate.`

// Φ(−a) = e^(−a²/2)·t·P(t) with t = 1/(1 + normalP·a): the coefficients of P, of t⁰ first, with the least error of
// a·Φ(−a). For a ≥ 0, e^(a²/2)·Φ(−a)/t is smooth in t.
const normalP = 0.3

var normalCoefficients = [...]float64{0.12105560333, 0.10661403025, 0.15930324087, -0.0083581835239, 0.13336576361, 0.054972236759,
	-0.090006583574, 0.023053893515}

// gated is a function of a gate: its constants, which emit returns a loop's body for.
type gated struct {
	name, doc string
	// emit prepares constants. What it returns makes f(g), and f′(g) where slope is set.
	emit func(a *isa, slope bool) func(g reg.VecVirtual) (v, d reg.VecVirtual)
}

// gates are the functions of gates. SiLU's and the clamped one, which also changes up, are not among them.
func gates() []gated {
	return []gated{
		{"GELU", "the tanh form of GELU", gateGELU},
		{"ExactGELU", "GELU", gateExactGELU},
		{"ReLU2", "the squared ReLU", gateReLU2},
		{"Sigmoid", "σ", gateSigmoid},
	}
}

func vecGate(a *isa) {
	for _, f := range gates() {
		a.function("gate"+f.name, "(y, gate, up []float32)", "stores "+f.doc+" of gate, times up.")
		y, gate, up, n := a.base("y"), a.base("gate"), a.base("up"), a.length("y")
		of := f.emit(a, false)
		a.each(n, func(at reg.Register, l lanes) {
			v, _ := of(a.load(a.at(gate, at), l))
			a.VMULPS(a.load(a.at(up, at), l), v, v)
			a.store(v, a.at(y, at), l)
		})
		a.end()
	}
	a.clampedGate()
}

func vecGateGrad(a *isa) {
	for _, f := range gates() {
		a.function("gate"+f.name+"Grad", "(dgate, dup, dy, gate, up []float32)", "stores the gradients of both inputs.")
		dgate, dup, dy := a.base("dgate"), a.base("dup"), a.base("dy")
		gate, up, n := a.base("gate"), a.base("up"), a.length("dgate")
		of := f.emit(a, true)
		a.each(n, func(at reg.Register, l lanes) {
			v, d := of(a.load(a.at(gate, at), l))
			w := a.load(a.at(dy, at), l)
			a.VMULPS(w, v, v)
			a.VMULPS(a.load(a.at(up, at), l), w, w)
			a.VMULPS(w, d, d)
			a.store(d, a.at(dgate, at), l)
			a.store(v, a.at(dup, at), l)
		})
		a.end()
	}
	a.clampedGateGrad()
}

func gateGELU(a *isa, slope bool) func(g reg.VecVirtual) (v, d reg.VecVirtual) {
	limit := float32(expMax)
	if slope {
		limit = logisticMax
	}
	e, one := a.exponential(limit), a.near(a.constant(1))
	negA, negB := a.near(a.constant(float32(-geluA))), a.near(a.constant(float32(-geluB)))
	slopeA, slopeB := a.constant(float32(geluA)), a.constant(float32(3*geluB))
	return func(x reg.VecVirtual) (v, d reg.VecVirtual) {
		z, u := a.vec(), a.copy(negA)
		a.VMULPS(x, x, z)
		a.VFMADD231PS(negB, z, u)
		a.VMULPS(x, u, u)
		if !slope {
			e.of(a, u)
			a.VADDPS(one, u, u)
			a.VDIVPS(u, x, x)
			return x, x
		}
		s := e.logistic(a, u, one)
		d = a.vec()
		a.VMULPS(s, u, d)
		a.VMULPS(s, d, d)
		a.VMULPS(x, d, d)
		w := a.copy(slopeA)
		a.VFMADD231PS(slopeB, z, w)
		a.VFMADD213PS(s, w, d)
		a.VMULPS(s, x, x)
		return x, d
	}
}

func gateExactGELU(a *isa, slope bool) func(g reg.VecVirtual) (v, d reg.VecVirtual) {
	e, one := a.exponential(expMax), a.near(a.constant(1))
	sign, minusHalf, p := a.bits(1<<31-1), a.constant(-0.5), a.constant(normalP)
	zero, density := a.constant(0), a.constant(float32(1/math.Sqrt(2*math.Pi)))
	var c []operand.Op
	for _, f := range normalCoefficients {
		c = append(c, a.near(a.constant(float32(f))))
	}
	return func(x reg.VecVirtual) (v, d reg.VecVirtual) {
		w, t, q := a.vec(), a.vec(), a.copy(one)
		a.VMULPS(x, x, w)
		a.VMULPS(minusHalf, w, w)
		e.of(a, w)
		a.VANDPS(sign, x, t)
		a.VFMADD231PS(p, t, q)
		a.VMOVUPS(one, t)
		a.VDIVPS(q, t, t)
		q = a.copy(c[len(c)-1])
		for i := len(c) - 2; i >= 0; i-- {
			a.VFMADD213PS(c[i], t, q)
		}
		a.VMULPS(t, q, q)
		a.VMULPS(w, q, q)
		a.Comment("Above 0 it is 1 − q.")
		const less = 0x11
		r := a.copy(one)
		a.VSUBPS(q, r, r)
		if a.zmm {
			k := a.K()
			a.VCMPPS(operand.U8(less), zero, x, k)
			a.VMOVAPS(q, k, r)
		} else {
			a.VCMPPS(operand.U8(less), zero, x, t)
			a.VBLENDVPS(t, q, r, r)
		}
		if slope {
			a.VMULPS(x, w, w)
			d = a.copy(r)
			a.VFMADD231PS(density, w, d)
		}
		a.VMULPS(r, x, x)
		return x, d
	}
}

func gateReLU2(a *isa, slope bool) func(g reg.VecVirtual) (v, d reg.VecVirtual) {
	zero := a.vec() // a register, so that a NaN stays one
	a.zero(zero)
	return func(x reg.VecVirtual) (v, d reg.VecVirtual) {
		a.VMAXPS(x, zero, x)
		if slope {
			d = a.vec()
			a.VADDPS(x, x, d)
		}
		a.VMULPS(x, x, x)
		return x, d
	}
}

func gateSigmoid(a *isa, slope bool) func(g reg.VecVirtual) (v, d reg.VecVirtual) {
	e, one, sign := a.exponential(logisticMax), a.near(a.constant(1)), a.near(a.bits(1<<31))
	return func(x reg.VecVirtual) (v, d reg.VecVirtual) {
		a.VXORPS(sign, x, x)
		v = e.logistic(a, x, one)
		if slope {
			a.VMULPS(v, x, x)
			a.VMULPS(v, x, x)
		}
		return v, x
	}
}

// clamped are the numbers of the clamped SwiGLU in registers.
type clamped struct{ low, high, alpha reg.VecVirtual }

func (a *isa) clamped() clamped {
	c := clamped{a.vec(), a.spread(a.param("limit")), a.spread(a.param("alpha"))}
	a.VXORPS(a.bits(1<<31), c.high, c.low)
	return c
}

// within puts up into ±limit, plus one.
func (c clamped) within(a *isa, up reg.VecVirtual, one operand.Op) {
	a.VMAXPS(up, c.low, up)
	a.VMINPS(up, c.high, up)
	a.VADDPS(one, up, up)
}

func (a *isa) clampedGate() {
	a.function("gateClamped", "(y, gate, up []float32, limit, alpha float32)", "stores the clamped SwiGLU.")
	y, gate, up, n := a.base("y"), a.base("gate"), a.base("up"), a.length("y")
	c, e, one := a.clamped(), a.exponential(expMax), a.near(a.constant(1))
	sign := a.bits(1 << 31)
	a.each(n, func(at reg.Register, l lanes) {
		g, t := a.load(a.at(gate, at), l), a.vec()
		a.VMINPS(g, c.high, g)
		a.VMULPS(c.alpha, g, t)
		a.VXORPS(sign, t, t)
		e.of(a, t)
		a.VADDPS(one, t, t)
		a.VDIVPS(t, g, g)
		u := a.load(a.at(up, at), l)
		c.within(a, u, one)
		a.VMULPS(u, g, g)
		a.store(g, a.at(y, at), l)
	})
	a.end()
}

func (a *isa) clampedGateGrad() {
	a.function("gateClampedGrad", "(dgate, dup, dy, gate, up []float32, limit, alpha float32)", "stores the gradients of both inputs.")
	dgate, dup, dy := a.base("dgate"), a.base("dup"), a.base("dy")
	gate, up, n := a.base("gate"), a.base("up"), a.length("dgate")
	c, e, one := a.clamped(), a.exponential(logisticMax), a.near(a.constant(1))
	sign, magnitude := a.bits(1<<31), a.bits(1<<31-1)
	a.each(n, func(at reg.Register, l lanes) {
		x, t, g := a.load(a.at(gate, at), l), a.vec(), a.vec()
		a.VMINPS(x, c.high, g)
		a.VMULPS(c.alpha, g, t)
		a.VXORPS(sign, t, t)
		s, w := e.logistic(a, t, one), a.load(a.at(dy, at), l)
		a.Comment("The slope by gate: σ·(1 + alpha·g·(1 − σ))·(u + 1).")
		a.VMULPS(s, t, t)
		a.VMULPS(g, t, t)
		a.VFMADD213PS(one, c.alpha, t)
		a.VMULPS(s, t, t)
		a.VMULPS(w, t, t)
		a.VMULPS(s, g, g)
		a.VMULPS(w, g, g)
		u := a.load(a.at(up, at), l)
		a.VANDPS(magnitude, u, w)
		c.within(a, u, one)
		a.VMULPS(u, t, t)
		a.keep(t, x, c.high)
		a.keep(g, w, c.high)
		a.store(t, a.at(dgate, at), l)
		a.store(g, a.at(dup, at), l)
	})
	a.end()
}

// keep puts 0 into the lanes of v where x is above a limit, and may change x.
func (a *isa) keep(v, x, limit reg.VecVirtual) {
	const notAbove = 0x1A
	if a.zmm {
		k := a.K()
		a.VCMPPS(operand.U8(notAbove), limit, x, k)
		a.VMOVAPS_Z(v, k, v)
		return
	}
	a.VCMPPS(operand.U8(notAbove), limit, x, x)
	a.VANDPS(x, v, v)
}

const softCapDoc = `
softCap: y = limit·tanh(x/limit). softCapGrad: dx = dy·(1 − tanh²(x/limit)). The limit comes with its inverse.

Registers: those of tanh; limit, inverse.`

func vecSoftCap(a *isa) {
	a.function("softCap", "(y, x []float32, limit, inverse float32)", "stores limit·tanh(x·inverse).")
	y, src, n, h := a.base("y"), a.base("x"), a.length("y"), a.hyperbolic()
	limit, inverse := a.spread(a.param("limit")), a.spread(a.param("inverse"))
	a.each(n, func(at reg.Register, l lanes) {
		x := a.load(a.at(src, at), l)
		a.VMULPS(inverse, x, x)
		v := h.tanh(a, x)
		a.VMULPS(limit, v, v)
		a.store(v, a.at(y, at), l)
	})
	a.end()
	a.function("softCapGrad", "(dx, dy, x []float32, inverse float32)", "stores dy·(1 − tanh²(x·inverse)).")
	dx, dy := a.base("dx"), a.base("dy")
	src, n, h = a.base("x"), a.length("dx"), a.hyperbolic()
	inverse = a.spread(a.param("inverse"))
	a.each(n, func(at reg.Register, l lanes) {
		x := a.load(a.at(src, at), l)
		a.VMULPS(inverse, x, x)
		v, d := h.tanh(a, x), a.copy(h.one)
		a.VFNMADD231PS(v, v, d)
		a.VMULPS(a.load(a.at(dy, at), l), d, d)
		a.store(d, a.at(dx, at), l)
	})
	a.end()
}
