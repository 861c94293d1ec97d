package main

import (
	"math"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const expDoc = `
dst = e^src.

x = n·ln 2 + r with |r| ≤ ln 2/2. Adding 1.5·2^23 + 126 to x/ln 2 rounds it, and
leaves n + 126 in the low bits: shifted to the exponent's place they are
2^(n−1). So the polynomial is 2·e^r, of degree 6, the best of those that begin
with 1 + r. For n = −126 the factor is 0 and so is the result: what is below
2^−125.5 is flushed, and no result is subnormal.

Registers: the constants where there are 32 registers, else those that are used
twice and those of the clamps; x, which becomes r; t, which becomes 2^(n−1); n; p, the polynomial.`

// expMax is where e^x is infinite.
const expMax = 89

// expCoefficients are those of r² to r⁶ in e^r ≈ 1 + r + …, with the least
// relative error (0.05 ulp) over |r| ≤ ln 2/2.
var expCoefficients = [...]float64{0.4999999345, 0.1666652063, 0.04166838805, 0.008368716879, 0.001381459856}

// exponential holds the constants of e^x.
type exponential struct {
	lo, hi                     reg.VecVirtual // the clamps: registers, so that a NaN stays one
	log2e, magic, ln2hi, ln2lo operand.Op
	c                          []operand.Op // of 2·e^r, highest power first
}

// exponential prepares e^x, for x up to a limit: what is above is taken for the
// limit.
func (a *isa) exponential(limit float32) exponential {
	number := func(f float64) operand.Op { return a.near(a.constant(float32(f))) }
	e := exponential{
		lo:    a.copy(a.constant(-87.5)), // n = −126
		hi:    a.copy(a.constant(limit)),
		log2e: number(math.Log2E),
		magic: a.copy(a.constant(1.5*(1<<23) + 126)),
		ln2hi: number(0.693359375), // few bits: n·ln2hi is exact
		ln2lo: number(-2.12194440e-4),
	}
	for i := range expCoefficients {
		e.c = append(e.c, number(2*expCoefficients[len(expCoefficients)-1-i]))
	}
	two := a.copy(a.constant(2))
	e.c = append(e.c, two, two)
	return e
}

// of replaces x by e^x.
func (e *exponential) of(a *isa, x reg.VecVirtual) {
	a.VMAXPS(x, e.lo, x)
	a.VMINPS(x, e.hi, x)
	t, n := a.copy(e.magic), a.vec()
	a.VFMADD231PS(e.log2e, x, t)
	a.VSUBPS(e.magic, t, n)
	a.VFNMADD231PS(e.ln2hi, n, x)
	a.VFNMADD231PS(e.ln2lo, n, x)
	p := a.copy(e.c[0])
	for _, c := range e.c[1:] {
		a.VFMADD213PS(c, x, p)
	}
	a.VPSLLD(operand.U8(23), t, t)
	a.VMULPS(t, p, x)
}

func vecExp(a *isa) {
	a.function("exp", "(dst, src []float32)", "stores e to the power of src.")
	dst, src, n := a.base("dst"), a.base("src"), a.length("dst")
	e := a.exponential(expMax)
	a.each(n, func(at reg.Register, l lanes) {
		x := a.load(a.at(src, at), l)
		e.of(a, x)
		a.store(x, a.at(dst, at), l)
	})
	a.end()
}

const tanhDoc = `
dst = tanh(src).

Below 0.55, x + x³·P(x²) with P of degree 4; above, 1 − 2/(e^2|x| + 1) with the
sign of x.

Registers: x; v = |x| and then the result of the second form; p of the first.`

// tanhCoefficients are those of P, with the least relative error (0.02 ulp)
// below 0.55.
var tanhCoefficients = [...]float64{-0.3333331756, 0.1333258614, -0.05385230993, 0.02107167917, -0.006274239722}

// hyperbolic holds the constants of tanh.
type hyperbolic struct {
	e                      exponential
	sign, one, two, border operand.Mem
	c                      []operand.Mem
}

func (a *isa) hyperbolic() hyperbolic {
	h := hyperbolic{a.exponential(expMax), a.bits(1 << 31), a.constant(1), a.constant(2), a.constant(0.55), nil}
	for _, f := range tanhCoefficients {
		h.c = append(h.c, a.constant(float32(f)))
	}
	return h
}

// tanh is a new register with tanh(x). It changes x.
func (h *hyperbolic) tanh(a *isa, x reg.VecVirtual) reg.VecVirtual {
	z, p, v, s := a.vec(), a.copy(h.c[4]), a.vec(), a.vec()
	a.Comment("The first form.")
	a.VMULPS(x, x, z)
	for i := 3; i >= 0; i-- {
		a.VFMADD213PS(h.c[i], z, p)
	}
	a.VMULPS(x, z, z)
	a.VFMADD213PS(x, z, p)
	a.Comment("The second form.")
	a.VANDPS(h.sign, x, s)
	a.VXORPS(s, x, x)
	a.VADDPS(x, x, v)
	h.e.of(a, v)
	a.VADDPS(h.one, v, v)
	w := a.copy(h.two)
	a.VDIVPS(v, w, w)
	v = a.copy(h.one)
	a.VSUBPS(w, v, v)
	a.VORPS(s, v, v)
	a.Comment("The first where |x| < 0.55.")
	const less = 0x11
	if a.zmm {
		k := a.K()
		a.VCMPPS(operand.U8(less), h.border, x, k)
		a.VMOVAPS(p, k, v)
	} else {
		a.VCMPPS(operand.U8(less), h.border, x, x)
		a.VBLENDVPS(x, p, v, v)
	}
	return v
}

func vecTanh(a *isa) {
	a.function("tanh", "(dst, src []float32)", "stores the hyperbolic tangent of src.")
	dst, src, n := a.base("dst"), a.base("src"), a.length("dst")
	h := a.hyperbolic()
	a.each(n, func(at reg.Register, l lanes) {
		a.store(h.tanh(a, a.load(a.at(src, at), l)), a.at(dst, at), l)
	})
	a.end()
}
