package main

import (
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// attnKernels lists the loops over scores, each for both widths. They work on
// blocks of as many columns as a packed strip of a matrix product has: two
// vectors.
func attnKernels() []kernel {
	var ks []kernel
	for _, k := range []struct {
		name string
		doc  string
		emit func(a *isa)
	}{
		{"max", attnMaxDoc, attnMax},
		{"exp", attnExpDoc, attnExp},
		{"scale", attnScaleDoc, attnScale},
		{"grad", attnGradDoc, attnGrad},
		{"mul", attnMulDoc, attnMul},
		{"cap", attnCapDoc, attnCap},
	} {
		ks = append(ks,
			kernel{"attn", k.name + "_avx2", k.doc, func(c *build.Context) { k.emit(avx2(c)) }},
			kernel{"attn", k.name + "_avx512", k.doc, func(c *build.Context) { k.emit(avx512(c)) }},
		)
	}
	return append(ks,
		kernel{"attn", "dot_avx2", attnDotDoc, func(c *build.Context) { attnDot(avx2(c)) }},
		kernel{"attn", "half_avx512bf16", attnHalfDoc, attnHalf},
		kernel{"attn", "cap_avx512bf16", attnCapHalfDoc, func(c *build.Context) { attnCapHalf(avx512(c)) }},
	)
}

const attnMaxDoc = `
top[q] = the largest of top[q] and scale·s[k][q] over all k.

Registers: the two vectors of top; the scale.`

func attnMax(a *isa) {
	a.function("max", "(top, s []float32, scale float32)", "raises top to the largest scaled score of each column.")
	top, s, n := a.base("top"), a.base("s"), a.length("s")
	scale := a.spread(a.param("scale"))
	t := []operand.Op{a.copy(operand.Mem{Base: top}), a.copy(operand.Mem{Base: top, Disp: a.bytes()})}
	a.pairs(n, func() {
		for i := range 2 {
			v := a.vec()
			a.VMULPS(operand.Mem{Base: s, Disp: i * a.bytes()}, scale, v)
			a.VMAXPS(v, t[i], t[i])
		}
		a.ADDQ(operand.U32(2*a.bytes()), s)
	})
	for i := range 2 {
		a.VMOVUPS(t[i], operand.Mem{Base: top, Disp: i * a.bytes()})
	}
	a.end()
}

// pairs loops over n elements, a multiple of two vectors, at least one pair.
func (a *isa) pairs(n operand.Op, body func()) {
	loop := a.label("loop")
	a.Label(loop)
	body()
	a.SUBQ(operand.U8(2*a.floats()), n)
	a.JNZ(a.jump(loop))
}

const attnExpDoc = `
s[k][q] = e^(scale·s[k][q] − top[q]), and sum[q] grows by them in ascending k.

Registers: the two vectors of sum; the scale; those of exp. top is read from
memory.`

func attnExp(a *isa) {
	a.function("exp", "(s, top, sum []float32, scale float32)", "turns scores into unnormalised probabilities, and sums them up.")
	s, top, sum, n := a.base("s"), a.base("top"), a.base("sum"), a.length("s")
	scale := a.spread(a.param("scale"))
	e := a.exponential(expMax)
	total := []operand.Op{a.copy(operand.Mem{Base: sum}), a.copy(operand.Mem{Base: sum, Disp: a.bytes()})}
	a.pairs(n, func() {
		for i := range 2 {
			m := operand.Mem{Base: s, Disp: i * a.bytes()}
			x := a.copy(m)
			a.VFMSUB213PS(operand.Mem{Base: top, Disp: i * a.bytes()}, scale, x)
			e.of(a, x)
			a.VADDPS(x, total[i], total[i])
			a.VMOVUPS(x, m)
		}
		a.ADDQ(operand.U32(2*a.bytes()), s)
	})
	for i := range 2 {
		a.VMOVUPS(total[i], operand.Mem{Base: sum, Disp: i * a.bytes()})
	}
	a.end()
}

const attnScaleDoc = `
s[k][q] = s[k][q]·f[q].`

func attnScale(a *isa) {
	a.function("scale", "(s, f []float32)", "multiplies each column by its factor.")
	s, f, n := a.base("s"), a.base("f"), a.length("s")
	factor := []operand.Op{a.copy(operand.Mem{Base: f}), a.copy(operand.Mem{Base: f, Disp: a.bytes()})}
	a.pairs(n, func() {
		for i := range 2 {
			m, v := operand.Mem{Base: s, Disp: i * a.bytes()}, a.vec()
			a.VMULPS(m, factor[i], v)
			a.VMOVUPS(v, m)
		}
		a.ADDQ(operand.U32(2*a.bytes()), s)
	})
	a.end()
}

const attnGradDoc = `
p[q][k] = e^(scale·p[q][k] − lse[q]); d[q][k] = p[q][k]·(d[q][k] − delta[q])·scale.

Registers: the scale; −lse and delta of the row; those of exp.`

func attnGrad(a *isa) {
	a.function("grad", "(p, d, lse, delta []float32, scale float32)",
		"turns scores into probabilities, and the probabilities' gradient into the scores'.")
	p, d, lse, delta, n := a.base("p"), a.base("d"), a.base("lse"), a.base("delta"), a.length("p")
	scale := a.spread(a.param("scale"))
	e := a.exponential(expMax)
	a.pairs(n, func() {
		l, dl := a.spread(operand.Mem{Base: lse}), a.spread(operand.Mem{Base: delta})
		for i := range 2 {
			mp, md := operand.Mem{Base: p, Disp: i * a.bytes()}, operand.Mem{Base: d, Disp: i * a.bytes()}
			x := a.copy(mp)
			a.VFMSUB213PS(l, scale, x)
			e.of(a, x)
			a.VMOVUPS(x, mp)
			g := a.copy(md)
			a.VSUBPS(dl, g, g)
			a.VMULPS(x, g, g)
			a.VMULPS(scale, g, g)
			a.VMOVUPS(g, md)
		}
		a.ADDQ(operand.U8(4), lse)
		a.ADDQ(operand.U8(4), delta)
		a.ADDQ(operand.U32(2*a.bytes()), p)
		a.ADDQ(operand.U32(2*a.bytes()), d)
	})
	a.end()
}

const attnMulDoc = `
s = s·m, element by element.`

func attnMul(a *isa) {
	a.function("mul", "(s, m []float32)", "multiplies by a mask.")
	s, m, n := a.base("s"), a.base("m"), a.length("s")
	a.pairs(n, func() {
		for i := range 2 {
			at, v := operand.Mem{Base: s, Disp: i * a.bytes()}, a.copy(operand.Mem{Base: m, Disp: i * a.bytes()})
			a.VMULPS(at, v, v)
			a.VMOVUPS(v, at)
		}
		a.ADDQ(operand.U32(2*a.bytes()), s)
		a.ADDQ(operand.U32(2*a.bytes()), m)
	})
	a.end()
}

const attnDotDoc = `
dst[i] = a[i]·b[i], for AVX2 and AVX-512 alike.

Every fourth number has a sum of its own in float64, in which products are exact: s0 to s3,
which end as (s0 + s1) + (s2 + s3). A row takes as long as its sums wait for each other, so
rows overlap.

Registers: the four sums; four numbers of a and of b.`

func attnDot(a *isa) {
	a.Function("dotFours")
	a.SignatureExpr("func(dst []float32, a, b *float32, strideA, strideB, fours int)")
	a.Pragma("noescape")
	a.Doc("dotFours stores a·b of as many rows as dst has, each of 4·fours numbers. Strides are in bytes.")
	dst, rows := a.base("dst"), a.length("dst")
	p := []reg.GPVirtual{a.integer("a"), a.integer("b")}
	stride := []reg.GPVirtual{a.integer("strideA"), a.integer("strideB")}
	fours, at, n := a.integer("fours"), a.GP64(), a.GP64()
	sums, x, y := a.YMM(), a.YMM(), a.YMM()
	a.Label("row")
	a.VXORPD(sums, sums, sums)
	a.XORQ(at, at)
	a.MOVQ(fours, n)
	a.Label("loop")
	a.VCVTPS2PD(operand.Mem{Base: p[0], Index: at, Scale: 1}, x)
	a.VCVTPS2PD(operand.Mem{Base: p[1], Index: at, Scale: 1}, y)
	a.VFMADD231PD(x, y, sums)
	a.ADDQ(operand.U8(16), at)
	a.DECQ(n)
	a.JNZ(a.jump("loop"))
	a.VHADDPD(sums, sums, sums)
	a.VEXTRACTF128(operand.U8(1), sums, x.AsX())
	a.VADDSD(x.AsX(), sums.AsX(), sums.AsX())
	a.VCVTSD2SS(sums.AsX(), sums.AsX(), sums.AsX())
	a.VMOVSS(sums.AsX(), operand.Mem{Base: dst})
	a.ADDQ(operand.U8(4), dst)
	for i := range 2 {
		a.ADDQ(stride[i], p[i])
	}
	a.DECQ(rows)
	a.JNZ(a.jump("row"))
	a.end()
}
