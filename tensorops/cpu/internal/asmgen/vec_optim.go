package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const adamWDoc = `
With g scaled first:

	m = b1·m + nb1·g, v = b2·v + nb2·g·g, w = keep·w − rate·m/(√v·root + eps)

and g = 0 afterwards where clear is set.

Registers: g, and a product with it; m; v and then the denominator; w; the nine
numbers.`

func vecAdamW(a *isa) {
	a.function("adamW", "(w, m, v, g []float32, b1, nb1, b2, nb2, keep, rate, root, eps, scale float32, clear bool)", "is one step of AdamW.")
	w, m, v, g, n := a.base("w"), a.base("m"), a.base("v"), a.base("g"), a.length("w")
	number := func(name string) reg.VecVirtual { return a.spread(a.param(name)) }
	b1, nb1, b2, nb2 := number("b1"), number("nb1"), number("b2"), number("nb2")
	keep, rate, root, eps, scale := number("keep"), number("rate"), number("root"), number("eps"), number("scale")
	clear := a.Load(a.Param("clear"), a.GP8())
	a.each(n, func(at reg.Register, l lanes) {
		gi, t := a.load(a.at(g, at), l), a.vec()
		a.VMULPS(scale, gi, gi)
		a.VMULPS(nb1, gi, t)
		mi := a.load(a.at(m, at), l)
		a.VFMADD213PS(t, b1, mi)
		a.store(mi, a.at(m, at), l)
		a.VMULPS(nb2, gi, t)
		a.VMULPS(gi, t, t)
		vi := a.load(a.at(v, at), l)
		a.VFMADD213PS(t, b2, vi)
		a.store(vi, a.at(v, at), l)
		a.VSQRTPS(vi, vi)
		a.VFMADD213PS(eps, root, vi)
		a.VMULPS(rate, mi, mi)
		a.VDIVPS(vi, mi, mi)
		wi := a.load(a.at(w, at), l)
		a.VFMSUB213PS(mi, keep, wi)
		a.store(wi, a.at(w, at), l)
		kept := a.label("kept")
		a.TESTB(clear, clear)
		a.JZ(a.jump(kept))
		zero := a.vec()
		a.zero(zero)
		a.store(zero, a.at(g, at), l)
		a.Label(kept)
	})
	a.end()
}

const sgdDoc = `
With d = scale·g + decay·w:

sgd: w = w − rate·d. sgdMomentum: m = momentum·m + d, w = w − rate·m.

Registers: d; w; m; the numbers.`

func vecSGD(a *isa) {
	a.function("sgd", "(w, g []float32, rate, decay, scale float32)", "is one step of SGD.")
	a.sgd(false)
	a.function("sgdMomentum", "(w, m, g []float32, rate, momentum, decay, scale float32)", "is one step of SGD with momentum.")
	a.sgd(true)
}

func (a *isa) sgd(momentum bool) {
	w, g, n := a.base("w"), a.base("g"), a.length("w")
	rate, decay, scale := a.spread(a.param("rate")), a.spread(a.param("decay")), a.spread(a.param("scale"))
	var m reg.GPVirtual
	var beta reg.VecVirtual
	if momentum {
		m, beta = a.base("m"), a.spread(a.param("momentum"))
	}
	a.each(n, func(at reg.Register, l lanes) {
		wi, d := a.load(a.at(w, at), l), a.load(a.at(g, at), l)
		a.VMULPS(scale, d, d)
		a.VFMADD231PS(decay, wi, d)
		if momentum {
			mi := a.load(a.at(m, at), l)
			a.VFMADD213PS(d, beta, mi)
			a.store(mi, a.at(m, at), l)
			d = mi
		}
		a.VFNMADD231PS(rate, d, wi)
		a.store(wi, a.at(w, at), l)
	})
	a.end()
}

const bf16Doc = `
float32 and bfloat16, its upper half. Rounding to the nearest, ties to even, adds
0x7fff and the lowest bit that stays; a NaN keeps its upper half and becomes a
quiet one.

toBF16: float32 to bfloat16. fromBF16: the other way. roundBF16: there and back.
Whole vectors only.

Registers: x and then its rounded bits; t, the quiet NaN; u = what is added, and
then where x is a NaN.`

func vecBF16(a *isa) {
	a.function("toBF16", "(dst []uint16, src []float32)", "rounds to bfloat16. The length is a multiple of 32.")
	a.whole(4, 2, a.floats(), func(dst, src operand.Mem) {
		x := a.rounded(src)
		a.VPSRLD(operand.U8(16), x, x)
		if a.zmm {
			a.VPMOVDW(x, dst)
			return
		}
		a.VMOVUPS(a.words(x), dst)
	})
	a.function("fromBF16", "(dst []float32, src []uint16)", "widens bfloat16. The length is a multiple of 32.")
	a.whole(2, 4, a.floats(), func(dst, src operand.Mem) {
		x := a.vec()
		a.VPMOVZXWD(src, x)
		a.VPSLLD(operand.U8(16), x, x)
		a.VMOVUPS(x, dst)
	})
	a.function("roundBF16", "(dst, src []float32)", "rounds to what bfloat16 can hold. The length is a multiple of 32.")
	a.whole(4, 4, a.floats(), func(dst, src operand.Mem) { a.VMOVUPS(a.rounded(src), dst) })
}

const bf16PairsDoc = `
Rounding to bfloat16 by the processor's own instruction, two vectors at a time. It takes
numbers below 2^-126 for zero, as products of bfloat16 do.`

// vecBF16Pairs is toBF16 where the processor has VCVTNE2PS2BF16.
func vecBF16Pairs(a *isa) {
	a.function("toBF16", "(dst []uint16, src []float32)", "rounds to bfloat16. The length is a multiple of 32.")
	a.whole(4, 2, 32, func(dst, src operand.Mem) {
		const lower, upper = 0, 1
		a.VMOVUPS(src, z(lower))
		a.VMOVUPS(src.Offset(a.bytes()), z(upper))
		roundBF16(a, upper, lower, lower)
		a.VMOVUPS(z(lower), dst)
	})
}

// whole loops over 32 elements at a time, of from and to bytes each; body does some of them.
func (a *isa) whole(from, to, some int, body func(dst, src operand.Mem)) {
	dst, src, n := a.base("dst"), a.base("src"), a.length("dst")
	a.steps(n, some, []reg.GPVirtual{dst, src}, []int{to, from}, func(m []operand.Mem) { body(m[0], m[1]) })
	a.end()
}

// steps loops over 32 elements at a time of operands, whose elements have so many bytes; body does some of them. It moves the operands
// on.
func (a *isa) steps(n reg.GPVirtual, some int, operands []reg.GPVirtual, bytes []int, body func(m []operand.Mem)) {
	const step = 32
	loop, done := a.label("loop"), a.label("done")
	a.TESTQ(n, n)
	a.JZ(a.jump(done))
	a.Label(loop)
	for at := 0; at < step; at += some {
		m := make([]operand.Mem, len(operands))
		for i, base := range operands {
			m[i] = operand.Mem{Base: base, Disp: at * bytes[i]}
		}
		body(m)
	}
	for i, base := range operands {
		a.ADDQ(operand.U32(step*bytes[i]), base)
	}
	a.SUBQ(operand.U8(step), n)
	a.JNZ(a.jump(loop))
	a.Label(done)
}

// rounded are the bits of float32, rounded to those of bfloat16.
func (a *isa) rounded(src operand.Mem) reg.VecVirtual {
	x, t, u := a.copy(src), a.vec(), a.vec()
	upper := a.bits(0xffff0000)
	a.VORPS(a.bits(0x00400000), x, t)
	a.VPSRLD(operand.U8(16), x, u)
	a.VANDPS(a.bits(1), u, u)
	a.VPADDD(a.bits(0x7fff), u, u)
	r := a.vec()
	a.VPADDD(u, x, r)
	const unordered = 3
	if a.zmm {
		k := a.K()
		a.VCMPPS(operand.U8(unordered), x, x, k)
		a.VMOVAPS(t, k, r)
	} else {
		a.VCMPPS(operand.U8(unordered), x, x, u)
		a.VBLENDVPS(u, t, r, r)
	}
	a.VANDPS(upper, r, r)
	return r
}
