package main

import (
	"math"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const stateDoc = `
The forms of an optimizer's state (internal/optstate), with its bits.

roundHalves: float32 to bfloat16, the upper half of the sum with 16 random bits.

The codes of 8 bits: see statecode.go. With r, the share of the scale, the least of some lines is x = k + 1.5 for the
last value that is not above r, or for the one before it. Then y, the value of the next x, says which of them it is.
So v ≤ r < w are two values, and r is rounded up where share·(w − v) − (r − v) is negative for the share that the
random bits say. Both differences are rounded only where w is more than twice v. There z gives what they lack, and
the sum of both products has the sign of the exact number.

Registers of a code: x, its number; r; t and u, lines; y and o, values of two numbers; v and w, the lower and the upper
of them; d and g, differences, and what they lack; h, the share.`

func vecState(a *isa) {
	a.function("roundHalves", "(dst []uint16, src []float32, halves []uint16)",
		"rounds to bfloat16 by random bits. The length is a multiple of 32.")
	a.roundHalves()
	a.function("largest", "(x []float32) uint32", "returns the bits of the largest magnitude, where those of a NaN are above all others.")
	a.largest()
	for _, c := range []*dynamicCode{signedCode, rootCode} {
		a.function("encode"+c.name, "(codes []byte, x []float32, halves []uint16, scale float32)",
			"stores the codes of finite numbers, rounded by random bits. The length is a multiple of 32.")
		a.encodeState(c)
		a.function("decode"+c.name, "(x []float32, codes []byte, scale float32)",
			"reads numbers from their codes. The length is a multiple of 32.")
		a.decodeState(c)
	}
}

func (a *isa) roundHalves() {
	dst, src, halves, n := a.base("dst"), a.base("src"), a.base("halves"), a.length("dst")
	exponent, quiet := a.near(a.bits(0x7f800000)), a.near(a.bits(0x00400000))
	a.steps(n, a.floats(), []reg.GPVirtual{dst, src, halves}, []int{2, 4, 2}, func(m []operand.Mem) {
		x, up, t := a.copy(m[1]), a.vec(), a.vec()
		a.VPMOVZXWD(m[2], up)
		a.VPADDD(x, up, up)
		a.VANDPS(exponent, up, t)
		const unordered = 3
		if a.zmm {
			infinite, nan := a.K(), a.K()
			a.VPCMPEQD(exponent, t, infinite)
			a.VMOVAPS(x, infinite, up)
			a.VORPS(quiet, x, t)
			a.VCMPPS(operand.U8(unordered), x, x, nan)
			a.VMOVAPS(t, nan, up)
			a.VPSRLD(operand.U8(16), up, up)
			a.VPMOVDW(up, m[0])
			return
		}
		nan := a.vec()
		a.VPCMPEQD(exponent, t, t)
		a.VBLENDVPS(t, x, up, up)
		a.VORPS(quiet, x, t)
		a.VCMPPS(operand.U8(unordered), x, x, nan)
		a.VBLENDVPS(nan, t, up, up)
		a.VPSRLD(operand.U8(16), up, up)
		a.VMOVUPS(a.words(up), m[0])
	})
	a.end()
}

// words packs the lower halves of eight words of 32 bits.
func (a *isa) words(v reg.VecVirtual) reg.Register {
	a.VPACKUSDW(v, v, v)
	a.VPERMQ(operand.U8(0x08), v, v) // the lower halves of both lanes
	return v.AsX()
}

func (a *isa) largest() {
	x, n := a.base("x"), a.length("x")
	top, magnitude := a.sums(), a.near(a.bits(0x7fffffff))
	a.blocks(n, len(top), a.floats(), func(i int, at reg.Register, l lanes) {
		v := a.load(a.part(x, at, i), l)
		a.VANDPS(magnitude, v, v)
		a.VPMAXUD(v, top[i], top[i])
	})
	larger := func(high, low reg.Register) { a.VPMAXUD(high, low, low) }
	a.VMOVSS(a.total(top, larger), a.result(0))
	a.end()
}

// codeTables are the lines of a code in registers or in memory.
type codeTables struct{ steep, base, steepRest, baseRest operand.Op }

func (a *isa) codeLines(c *dynamicCode) codeTables {
	table := func(name string, of [8]float32) operand.Op {
		words := make([]uint64, a.floats()/2)
		for i := range words {
			low, high := math.Float32bits(of[2*i%8]), math.Float32bits(of[2*i%8+1])
			words[i] = uint64(high)<<32 | uint64(low)
		}
		return a.near(a.table(name+c.name, words))
	}
	return codeTables{table("steep", c.steep), table("base", c.base), table("steepRest", c.steepRest), table("baseRest", c.baseRest)}
}

// value returns the values of the numbers x.
func (a *isa) value(l codeTables, x reg.VecVirtual) reg.VecVirtual {
	e := a.vec()
	a.VPSRLD(operand.U8(23), x, e)
	line := func(steep, base operand.Op) reg.VecVirtual {
		s, b := a.vec(), a.vec()
		a.VPERMPS(steep, e, s)
		a.VPERMPS(base, e, b)
		a.VFMADD213PS(b, x, s)
		return s
	}
	v := line(l.steep, l.base)
	a.VADDPS(line(l.steepRest, l.baseRest), v, v)
	return v
}

func (a *isa) encodeState(c *dynamicCode) {
	codes, from, halves, n, scale := a.base("codes"), a.base("x"), a.base("halves"), a.length("codes"), a.spread(a.param("scale"))
	ofRoot, l := c == rootCode, a.codeLines(c)
	a.steps(n, a.floats(), []reg.GPVirtual{codes, from, halves}, []int{1, 4, 2}, func(m []operand.Mem) {
		x, r := a.copy(m[1]), a.vec()
		a.VANDPS(a.bits(0x7fffffff), x, r)
		if ofRoot {
			a.VSQRTPS(r, r)
		}
		a.VDIVPS(scale, r, r)
		var t reg.VecVirtual
		for i, rate := range c.rate {
			u := a.copy(a.constant(rate))
			a.VFMADD213PS(a.constant(c.start[i]), r, u)
			if i > 0 {
				a.VMINPS(u, t, u)
			}
			t = u
		}
		a.Comment("The value of the next number tells on which side of it r is: the numbers after and before it are the other one.")
		a.wholePart(t)
		next, other := t, a.vec()
		a.VADDPS(a.constant(2.5), t, next)
		y := a.value(l, next)
		a.otherSide(y, r, next, other)
		o, v, w := a.value(l, other), a.vec(), a.vec()
		a.VMINPS(o, y, v)
		a.VMAXPS(o, y, w)
		a.VMINPS(other, next, next)
		h := a.vec()
		a.VPMOVZXWD(m[2], h)
		a.VCVTDQ2PS(h, h)
		a.VMULPS(a.constant(1.0/(1<<16)), h, h)
		a.VADDPS(a.constant(1.0/(1<<17)), h, h)
		d, dLacks := a.difference(r, v)
		g, gLacks := a.difference(w, v)
		a.VFMSUB213PS(d, h, g)
		a.VFMSUB213PS(dLacks, h, gLacks)
		a.VADDPS(gLacks, g, g)
		a.VPSRLD(operand.U8(31), g, g)
		code := next
		a.VCVTTPS2DQ(next, code)
		a.VPADDD(g, code, code)
		a.VPADDD(a.bits(0xffffffff), code, code)
		if ofRoot {
			a.Comment("A number above 0 has no code 0.")
			a.VPMINUD(a.bits(1), r, r)
			a.VPMAXUD(r, code, code)
		} else {
			a.signCode(x, code)
		}
		a.storeBytes(code, m[0])
	})
	a.end()
}

// wholePart removes the fraction of numbers that are not negative.
func (a *isa) wholePart(v reg.VecVirtual) {
	const down = 9
	if a.zmm {
		a.VRNDSCALEPS(operand.U8(down), v, v)
	} else {
		a.VROUNDPS(operand.U8(down), v, v)
	}
}

// otherSide stores next + 1 where y is at most r, and next − 1 elsewhere.
func (a *isa) otherSide(y, r, next, other reg.VecVirtual) {
	const atMost = 18
	if a.zmm {
		k := a.K()
		a.VCMPPS(operand.U8(atMost), r, y, k)
		a.VADDPS(a.constant(-1), next, other)
		a.VADDPS(a.constant(1), next, k, other)
		return
	}
	a.VCMPPS(operand.U8(atMost), r, y, other)
	a.VANDPS(a.constant(2), other, other)
	a.VADDPS(a.constant(-1), other, other)
	a.VADDPS(next, other, other)
}

// difference returns x − y rounded, for x ≥ y ≥ 0, and what it lacks.
func (a *isa) difference(x, y reg.VecVirtual) (d, lacks reg.VecVirtual) {
	d, lacks = a.vec(), a.vec()
	a.VSUBPS(y, x, d)
	a.VSUBPS(d, x, lacks)
	a.VSUBPS(y, lacks, lacks)
	return d, lacks
}

// signCode adds the sign of x to codes that are not 0.
func (a *isa) signCode(x, code reg.VecVirtual) {
	a.VPSRLD(operand.U8(24), x, x)
	a.VANDPS(a.bits(0x80), x, x)
	if a.zmm {
		k := a.K()
		a.VPTESTMD(code, code, k)
		a.VPORD(x, code, k, code)
		return
	}
	some := a.vec()
	a.VPCMPGTD(a.bits(0), code, some)
	a.VPAND(some, x, x)
	a.VPOR(x, code, code)
}

// storeBytes stores the lowest bytes of words of 32 bits.
func (a *isa) storeBytes(v reg.VecVirtual, m operand.Mem) {
	if a.zmm {
		a.VPMOVDB(v, m)
		return
	}
	w := a.words(v)
	a.VPACKUSWB(w, w, w)
	a.VMOVQ(w, m)
}

func (a *isa) decodeState(c *dynamicCode) {
	to, codes, n, scale := a.base("x"), a.base("codes"), a.length("x"), a.spread(a.param("scale"))
	ofRoot, l := c == rootCode, a.codeLines(c)
	a.steps(n, a.floats(), []reg.GPVirtual{to, codes}, []int{4, 1}, func(m []operand.Mem) {
		x, sign := a.vec(), a.vec()
		a.VPMOVZXBD(m[1], x)
		if !ofRoot {
			a.VPSLLD(operand.U8(24), x, sign)
			a.VANDPS(a.bits(0x80000000), sign, sign)
			a.VANDPS(a.bits(0x7f), x, x)
		}
		a.VCVTDQ2PS(x, x)
		a.VADDPS(a.constant(1.5), x, x)
		v := a.value(l, x)
		a.VMULPS(scale, v, v)
		if ofRoot {
			a.VMULPS(v, v, v)
		} else {
			a.VORPS(sign, v, v)
		}
		a.VMOVUPS(v, m[0])
	})
	a.end()
}
