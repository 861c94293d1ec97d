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

const attnCapHalfDoc = `
The loops of the soft cap for scores that are products of bfloat16: tanh to 2·10⁻⁴ of itself, which is
a tenth of what rounding to bfloat16 may take. P and Q have degree 2, for |x| ≤ 5, and 1/Q has one step:
where products are as fast as those of tiles, the cap would take a third of attention's time otherwise.`

// tangentForm is how tanh is approximated: x·P(x²)/Q(x²), with coefficients, lowest power first, of the
// least relative error below a limit.
type tangentForm struct {
	limit float64
	p, q  []float64
	steps int // towards 1/Q
}

var (
	// exactTangent has an error of 0.2 ulp, without its roundings.
	exactTangent = tangentForm{limit: 9,
		p: []float64{1, 0.13383980270117596, 0.0034989960780976654, 2.0661262721894964e-05, 1.3419822395464026e-08},
		q: []float64{1, 0.4671730175211153, 0.025890206372633354, 0.00032910383806091, 7.804729514253755e-07}, steps: 2}
	// halfTangent has one of 6·10⁻⁵, and its reciprocal one of 1.3·10⁻⁴.
	halfTangent = tangentForm{limit: 5, p: []float64{1, 0.10273583978414536, 0.0006779010291211307},
		q: []float64{1, 0.4358478784561157, 0.012903851456940174}, steps: 1}
)

// tangentSeed less the bits of a number has those of about its reciprocal.
const tangentSeed = 0x7ef30000

// tangent holds the constants of tanh.
type tangent struct {
	lo, hi, seed reg.VecVirtual
	p, q         []operand.Op // highest power first
	steps        int
}

func (a *isa) tangent(f tangentForm) tangent {
	t := tangent{lo: a.copy(a.constant(float32(-f.limit))), hi: a.copy(a.constant(float32(f.limit))), seed: a.copy(a.bits(tangentSeed)),
		steps: f.steps}
	for power := len(f.p) - 1; power > 0; power-- {
		t.p = append(t.p, a.near(a.constant(float32(f.p[power]))))
		t.q = append(t.q, a.near(a.constant(float32(f.q[power]))))
	}
	one := a.near(a.constant(1))
	t.p, t.q = append(t.p, one), append(t.q, one)
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
	for range t.steps {
		e := a.copy(one)
		a.VFNMADD231PS(q, r, e)
		f := a.copy(e)
		a.VFMADD213PS(e, e, f)
		a.VFMADD213PS(r, f, r)
	}
	a.VMULPS(r, x, x)
}

func attnCap(a *isa) { attnCapBy(a, exactTangent) }

func attnCapHalf(a *isa) {
	a.name += "BF16"
	attnCapBy(a, halfTangent)
}

func attnCapBy(a *isa, form tangentForm) {
	a.function("cap", "(s []float32, factor, cap float32)", "bounds scores softly.")
	s, n := a.base("s"), a.length("s")
	factor, limit := a.spread(a.param("factor")), a.spread(a.param("cap"))
	t := a.tangent(form)
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
	t = a.tangent(form)
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
