package main

import "github.com/mmcloughlin/avo/reg"

const maxDoc = `
The largest element, in 32 lanes that begin with −Inf; a NaN is passed over.

Registers: the lanes; a vector of the row.`

func vecMax(a *isa) {
	a.function("max", "(x []float32) float32", "returns the largest element.")
	x, n := a.base("x"), a.length("x")
	top := a.vecs(reduceLanes / a.floats())
	for _, v := range top {
		a.VMOVUPS(a.bits(0xff800000), v)
	}
	a.blocks(n, len(top), a.floats(), func(i int, at reg.Register, l lanes) {
		v := a.loadOr(a.part(x, at, i), l, top[i])
		a.VMAXPS(top[i], v, top[i])
	})
	larger := func(high, low reg.Register) { a.VMAXPS(high, low, low) }
	a.VMOVSS(a.total(top, larger), a.result(0))
	a.end()
}

const sumExpDoc = `
The sum of e^(x − top), in 32 lanes.

Registers: the lanes; top; those of e^x (see exp).`

func vecSumExp(a *isa) {
	a.function("sumExp", "(x []float32, top float32) float32", "returns the sum of e to the power of x − top.")
	x, n, top := a.base("x"), a.length("x"), a.spread(a.param("top"))
	sum, e := a.sums(), a.exponential(expMax)
	a.blocks(n, len(sum), a.floats(), func(i int, at reg.Register, l lanes) {
		v := a.load(a.part(x, at, i), l)
		a.VSUBPS(top, v, v)
		e.of(a, v)
		a.clear(v, l)
		a.VADDPS(v, sum[i], sum[i])
	})
	a.VMOVSS(a.total(sum, a.addition()), a.result(0))
	a.end()
}

const crossEntropyGradDoc = `
dst = scale·e^((src − top) − rest): top + rest is the logarithm of the sum, in
two parts because one float32 would lose precision.

Registers: x; top, rest, scale; those of e^x (see exp).`

func vecCrossEntropyGrad(a *isa) {
	a.function("crossEntropyGrad", "(dst, src []float32, top, rest, scale float32)", "stores scale times e to the power of src − top − rest.")
	dst, src, n := a.base("dst"), a.base("src"), a.length("dst")
	top, rest, scale := a.spread(a.param("top")), a.spread(a.param("rest")), a.spread(a.param("scale"))
	e := a.exponential(expMax)
	a.each(n, func(at reg.Register, l lanes) {
		x := a.load(a.at(src, at), l)
		a.VSUBPS(top, x, x)
		a.VSUBPS(rest, x, x)
		e.of(a, x)
		a.VMULPS(scale, x, x)
		a.store(x, a.at(dst, at), l)
	})
	a.end()
}
