package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const attnCapDoc = `
cap: s = cap·tanh(factor·s). capSlope: the same, and slope = (1 − tanh²)·scale.

tanh(x) = x·P(x²)/Q(x²) for |x| ≤ 9, where it is 1; P and Q have degree 4 and begin with 1. It is
computed of every score, beside a product of as many multiply-adds as a head has channels. So there
is no exponential, and no division, for which the processors have one slow unit: 1/Q begins with a
subtraction of its bits, which is right to 5 %, and e = 1 − Q·r, r ← r·(1 + e + e²), twice. Every
instruction set has the same bits.

Registers: the constants where there are 32 registers; x, its square z, P and Q, and of 1/Q what e and
1 + e + e² are made of.`

// tangentP and tangentQ are the coefficients of tanh, lowest power first, with the least relative
// error (0.2 ulp) below tangentMax.
var (
	tangentP = [...]float64{1, 0.13383980270117596, 0.0034989960780976654, 2.0661262721894964e-05, 1.3419822395464026e-08}
	tangentQ = [...]float64{1, 0.4671730175211153, 0.025890206372633354, 0.00032910383806091, 7.804729514253755e-07}
)

const (
	tangentMax  = 9
	tangentSeed = 0x7ef30000 // less the bits of a number: those of about its reciprocal
)

// tangent holds the constants of tanh.
type tangent struct {
	lo, hi, seed reg.VecVirtual
	p, q         []operand.Op // highest power first
}

func (a *isa) tangent() tangent {
	t := tangent{lo: a.copy(a.constant(-tangentMax)), hi: a.copy(a.constant(tangentMax)), seed: a.copy(a.bits(tangentSeed))}
	one := a.near(a.constant(1))
	for i := range tangentP {
		power := len(tangentP) - 1 - i
		if power == 0 {
			t.p, t.q = append(t.p, one), append(t.q, one)
			continue
		}
		t.p = append(t.p, a.near(a.constant(float32(tangentP[power]))))
		t.q = append(t.q, a.near(a.constant(float32(tangentQ[power]))))
	}
	return t
}

// of replaces x by tanh(x). A NaN stays one.
func (t *tangent) of(a *isa, x reg.VecVirtual) {
	a.VMAXPS(x, t.lo, x)
	a.VMINPS(x, t.hi, x)
	z, one := a.vec(), t.p[len(t.p)-1]
	a.VMULPS(x, x, z)
	p, q := a.copy(t.p[0]), a.copy(t.q[0])
	for i := range t.p[1:] {
		a.VFMADD213PS(t.p[1+i], z, p)
		a.VFMADD213PS(t.q[1+i], z, q)
	}
	a.VMULPS(p, x, x)
	r := a.vec()
	a.VPSUBD(q, t.seed, r)
	for range 2 {
		e := a.copy(one)
		a.VFNMADD231PS(q, r, e)
		f := a.copy(e)
		a.VFMADD213PS(e, e, f)
		a.VFMADD213PS(r, f, r)
	}
	a.VMULPS(r, x, x)
}

func attnCap(a *isa) {
	a.function("cap", "(s []float32, factor, cap float32)", "bounds scores softly.")
	s, n := a.base("s"), a.length("s")
	factor, limit := a.spread(a.param("factor")), a.spread(a.param("cap"))
	t := a.tangent()
	a.pairs(n, func() {
		for i := range 2 {
			m, x := operand.Mem{Base: s, Disp: i * a.bytes()}, a.vec()
			a.VMULPS(m, factor, x)
			t.of(a, x)
			a.VMULPS(limit, x, x)
			a.VMOVUPS(x, m)
		}
		a.ADDQ(operand.U32(2*a.bytes()), s)
	})
	a.end()

	a.function("capSlope", "(s, slope []float32, factor, cap, scale float32)", "bounds scores softly, and stores the slopes of that.")
	s, n = a.base("s"), a.length("s")
	slope := a.base("slope")
	factor, limit = a.spread(a.param("factor")), a.spread(a.param("cap"))
	scale := a.spread(a.param("scale"))
	t = a.tangent()
	a.pairs(n, func() {
		for i := range 2 {
			m, x := operand.Mem{Base: s, Disp: i * a.bytes()}, a.vec()
			a.VMULPS(m, factor, x)
			t.of(a, x)
			f := a.copy(t.p[len(t.p)-1])
			a.VFNMADD231PS(x, x, f)
			a.VMULPS(scale, f, f)
			a.VMOVUPS(f, operand.Mem{Base: slope, Disp: i * a.bytes()})
			a.VMULPS(limit, x, x)
			a.VMOVUPS(x, m)
		}
		a.ADDQ(operand.U32(2*a.bytes()), s)
		a.ADDQ(operand.U32(2*a.bytes()), slope)
	})
	a.end()
}
