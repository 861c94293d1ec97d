package main

import "github.com/mmcloughlin/avo/reg"

const maxDoc = `
The largest element, in 32 lanes that begin with −Inf; a NaN is passed over.

Registers: the lanes; a vector of the row.`

func vecMax(a *isa) {
	a.function("max", "(x []float32) float32", "returns the largest element.")
	x, n := a.base("x"), a.length("x")
	top := a.vecs(foldLanes / a.floats())
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

const expSumDoc = `
expSum: x = e^(scale·x − top); the sum of it, in 32 lanes.
sumExp: the sum of e^(x − top), without a change to x.

Registers: the lanes; top; scale; those of e^x (see exp).`

func vecExpSum(a *isa) {
	a.function("expSum", "(x []float32, scale, top float32) float32", "replaces x by e to the power of scale·x − top, and returns the sum.")
	a.exponentials(true)
	a.function("sumExp", "(x []float32, top float32) float32", "returns the sum of e to the power of x − top.")
	a.exponentials(false)
}

func (a *isa) exponentials(replace bool) {
	x, n, top := a.base("x"), a.length("x"), a.spread(a.param("top"))
	var scale reg.VecVirtual
	if replace {
		scale = a.spread(a.param("scale"))
	}
	sum, e := a.sums(), a.exponential(expMax)
	a.blocks(n, len(sum), a.floats(), func(i int, at reg.Register, l lanes) {
		m := a.part(x, at, i)
		v := a.load(m, l)
		if replace {
			a.VFMSUB213PS(top, scale, v)
		} else {
			a.VSUBPS(top, v, v)
		}
		e.of(a, v)
		if replace {
			a.store(v, m, l)
		}
		a.clear(v, l)
		a.VADDPS(v, sum[i], sum[i])
	})
	a.VMOVSS(a.total(sum, a.addition()), a.result(0))
	a.end()
}

const softmaxGradDoc = `
With p = e^(scale·s − lse):

softmaxGrad: s = p, dp = p·(dp − delta)·scale.
softmaxDropGrad: s = inverse·(p where keep), dp = p·(inverse·(dp where keep) −
delta)·scale.

Registers: p; g, the gradient; k, the mask; scale, lse and delta, and inverse in
memory where there are 16 registers; those of e^x (see exp).`

func vecSoftmaxGrad(a *isa) {
	a.function("softmaxGrad", "(s, dp []float32, scale, lse, delta float32)",
		"replaces scores by probabilities, and the probabilities' gradient by the scores'.")
	a.softmaxGrad(false)
	a.function("softmaxDropGrad", "(s, dp []float32, keep []uint32, scale, lse, delta, inverse float32)",
		"is softmaxGrad where probabilities that keep does not name were dropped, and the rest multiplied by inverse.")
	a.softmaxGrad(true)
}

func (a *isa) softmaxGrad(drop bool) {
	s, dp, n := a.base("s"), a.base("dp"), a.length("s")
	scale, lse, delta := a.spread(a.param("scale")), a.spread(a.param("lse")), a.spread(a.param("delta"))
	var keep reg.GPVirtual
	var inverse reg.VecVirtual
	if drop {
		keep, inverse = a.base("keep"), a.spread(a.param("inverse"))
	}
	e := a.exponential(expMax)
	a.each(n, func(at reg.Register, l lanes) {
		p := a.load(a.at(s, at), l)
		a.VFMSUB213PS(lse, scale, p)
		e.of(a, p)
		g := a.load(a.at(dp, at), l)
		out := p
		if drop {
			k := a.load(a.at(keep, at), l)
			a.VANDPS(k, g, g)
			a.VMULPS(inverse, g, g)
			a.VANDPS(k, p, k)
			a.VMULPS(inverse, k, k)
			out = k
		}
		a.store(out, a.at(s, at), l)
		a.VSUBPS(delta, g, g)
		a.VMULPS(p, g, g)
		a.VMULPS(scale, g, g)
		a.store(g, a.at(dp, at), l)
	})
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
