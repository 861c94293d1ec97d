package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const momentsDoc = `
The sums of x − shift and of its square, in 16 lanes of float64. Where there is
no element, shift stands in and adds 0.

Registers: the lanes of both sums; d, the differences; shift in float32 and in
float64.`

func vecMoments(a *isa) {
	a.function("moments", "(x []float32, shift float32) (sum, squares float64)", "returns the sums of x − shift and of its square.")
	x, n, shift, shift64 := a.base("x"), a.length("x"), a.spread(a.param("shift")), a.vec()
	a.VCVTPS2PD(a.half(shift), shift64)
	sum, squares := a.doubles(), a.doubles()
	a.blocks(n, len(sum), a.floats()/2, func(i int, at reg.Register, l lanes) {
		d := a.widened(a.at(x, at).Offset(i*a.bytes()/2), l, shift)
		a.VSUBPD(shift64, d, d)
		a.VADDPD(d, sum[i], sum[i])
		a.VFMADD231PD(d, d, squares[i])
	})
	a.VMOVSD(a.totalDouble(sum), a.result(0))
	a.VMOVSD(a.totalDouble(squares), a.result(1))
	a.end()
}

const squaresDoc = `
The sum of x², in 16 lanes of float64.

Registers: the lanes; d, a part of x.`

func vecSquares(a *isa) {
	a.function("squares", "(x []float32) float64", "returns the sum of the squares.")
	x, n, sum, zero := a.base("x"), a.length("x"), a.doubles(), a.vec()
	a.zero(zero)
	a.blocks(n, len(sum), a.floats()/2, func(i int, at reg.Register, l lanes) {
		d := a.widened(a.at(x, at).Offset(i*a.bytes()/2), l, zero)
		a.VFMADD231PD(d, d, sum[i])
	})
	a.VMOVSD(a.totalDouble(sum), a.result(0))
	a.end()
}

// widened reads half a vector of float32 as a vector of float64; lanes without
// an element are those of other.
func (a *isa) widened(m operand.Mem, l lanes, other reg.VecVirtual) reg.VecVirtual {
	d := a.vec()
	switch {
	case l.mask == nil:
		a.VCVTPS2PD(m, d)
	case a.zmm:
		a.VMOVAPS(other, d)
		a.VMOVUPS(m, l.mask, d.AsY())
		a.VCVTPS2PD(d.AsY(), d)
	default:
		mask := l.mask.(reg.VecVirtual).AsX()
		a.VMASKMOVPS(m, mask, d.AsX())
		a.VBLENDVPS(mask, d.AsX(), other.AsX(), d.AsX())
		a.VCVTPS2PD(d.AsX(), d)
	}
	return d
}

const normaliseDoc = `
normalise: y = (x − mean)·rstd·gamma. normaliseAdd: that plus beta.

Registers: v; mean; rstd.`

func vecNormalise(a *isa) {
	a.function("normalise", "(y, x, gamma []float32, mean, rstd float32)", "stores (x − mean)·rstd·gamma.")
	a.normalise(false)
	a.function("normaliseAdd", "(y, x, gamma, beta []float32, mean, rstd float32)", "stores (x − mean)·rstd·gamma + beta.")
	a.normalise(true)
}

func (a *isa) normalise(add bool) {
	y, x, gamma, n := a.base("y"), a.base("x"), a.base("gamma"), a.length("y")
	mean, rstd := a.spread(a.param("mean")), a.spread(a.param("rstd"))
	var beta reg.GPVirtual
	if add {
		beta = a.base("beta")
	}
	a.each(n, func(at reg.Register, l lanes) {
		v := a.load(a.at(x, at), l)
		a.VSUBPS(mean, v, v)
		a.VMULPS(rstd, v, v)
		g := a.load(a.at(gamma, at), l)
		if add {
			a.VFMADD213PS(a.load(a.at(beta, at), l), g, v)
		} else {
			a.VMULPS(g, v, v)
		}
		a.store(v, a.at(y, at), l)
	})
	a.end()
}

const normSumsDoc = `
The sums of g = dy·gamma and of g·(x − mean), in 32 lanes of float32.

Registers: the lanes of both sums; g; d = x − mean; mean.`

func vecNormSums(a *isa) {
	a.function("normSums", "(dy, x, gamma []float32, mean float32) (sum, dot float32)",
		"returns the sums of dy·gamma and of dy·gamma·(x − mean).")
	dy, x, gamma, n, mean := a.base("dy"), a.base("x"), a.base("gamma"), a.length("x"), a.spread(a.param("mean"))
	sum, dot := a.sums(), a.sums()
	a.blocks(n, len(sum), a.floats(), func(i int, at reg.Register, l lanes) {
		g, d := a.load(a.part(dy, at, i), l), a.load(a.part(x, at, i), l)
		a.VMULPS(a.load(a.part(gamma, at, i), l), g, g)
		a.VSUBPS(mean, d, d)
		a.VADDPS(g, sum[i], sum[i])
		a.VFMADD231PS(d, g, dot[i])
	})
	a.VMOVSS(a.total(sum, a.addition()), a.result(0))
	a.VMOVSS(a.total(dot, a.addition()), a.result(1))
	a.end()
}

const normGradDoc = `
normGrad: dx = rstd·((dy·gamma − a) − (x − mean)·b), where a is the mean of
dy·gamma and b of dy·gamma·x̂ times rstd. normGradAdd: that plus skip.

Registers: g = dy·gamma and then the difference; d = x − mean; mean, rstd, a, b.`

func vecNormGrad(a *isa) {
	a.function("normGrad", "(dx, dy, x, gamma []float32, mean, rstd, a, b float32)", "stores rstd·((dy·gamma − a) − (x − mean)·b).")
	a.normGrad(false)
	a.function("normGradAdd", "(dx, dy, x, gamma, skip []float32, mean, rstd, a, b float32)",
		"stores rstd·((dy·gamma − a) − (x − mean)·b) + skip.")
	a.normGrad(true)
}

func (a *isa) normGrad(add bool) {
	dx, dy, x, gamma, n := a.base("dx"), a.base("dy"), a.base("x"), a.base("gamma"), a.length("dx")
	mean, rstd := a.spread(a.param("mean")), a.spread(a.param("rstd"))
	meanG, slope := a.spread(a.param("a")), a.spread(a.param("b"))
	var skip reg.GPVirtual
	if add {
		skip = a.base("skip")
	}
	a.each(n, func(at reg.Register, l lanes) {
		g, d := a.load(a.at(dy, at), l), a.load(a.at(x, at), l)
		a.VMULPS(a.load(a.at(gamma, at), l), g, g)
		a.VSUBPS(meanG, g, g)
		a.VSUBPS(mean, d, d)
		a.VFNMADD231PS(slope, d, g)
		a.VMULPS(rstd, g, g)
		if add {
			a.VADDPS(a.load(a.at(skip, at), l), g, g)
		}
		a.store(g, a.at(dx, at), l)
	})
	a.end()
}

const normWeightGradDoc = `
dgamma += dy·(x − mean)·rstd and dbeta += dy for rows of dy and x, one after the
other. Four rows at a time, so that the sums are read and written once for four
numbers; or one. stats holds mean and rstd of each row; for RMSNorm, rstd alone,
and there is no mean and no dbeta.

Registers: the sums; g = dy; d = x̂; mean and rstd of each row.`

func vecNormWeightGrad(a *isa) {
	for _, rows := range []int{1, 4} {
		number := map[int]string{1: "One", 4: "Four"}[rows]
		a.function("layerNormWeightGrad"+number, "(dgamma, dbeta, dy, x, stats []float32)", "adds rows to the gradients of LayerNorm's weights.")
		a.normWeightGrad(rows, true)
		a.function("rmsNormWeightGrad"+number, "(dgamma, dy, x, stats []float32)", "adds rows to the gradient of RMSNorm's weights.")
		a.normWeightGrad(rows, false)
	}
}

func (a *isa) normWeightGrad(rows int, layer bool) {
	dgamma, stats, n := a.base("dgamma"), a.base("stats"), a.length("dgamma")
	dy, x := a.rows(a.base("dy"), n, rows), a.rows(a.base("x"), n, rows)
	var dbeta reg.GPVirtual
	mean, rstd := make([]reg.VecVirtual, rows), make([]reg.VecVirtual, rows)
	if layer {
		dbeta = a.base("dbeta")
	}
	for r := range rows {
		if layer {
			mean[r] = a.spread(operand.Mem{Base: stats, Disp: 8 * r})
			rstd[r] = a.spread(operand.Mem{Base: stats, Disp: 8*r + 4})
		} else {
			rstd[r] = a.spread(operand.Mem{Base: stats, Disp: 4 * r})
		}
	}
	a.each(n, func(at reg.Register, l lanes) {
		weight := a.load(a.at(dgamma, at), l)
		var bias reg.VecVirtual
		if layer {
			bias = a.load(a.at(dbeta, at), l)
		}
		for r := range rows {
			g, d := a.load(a.at(dy[r], at), l), a.load(a.at(x[r], at), l)
			if layer {
				a.VSUBPS(mean[r], d, d)
				a.VADDPS(g, bias, bias)
			}
			a.VMULPS(rstd[r], d, d)
			a.VFMADD231PS(d, g, weight)
		}
		a.store(weight, a.at(dgamma, at), l)
		if layer {
			a.store(bias, a.at(dbeta, at), l)
		}
	})
	a.end()
}
