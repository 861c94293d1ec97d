package main

import "github.com/mmcloughlin/avo/reg"

const addDoc = `dst = a + b.`

func vecAdd(a *isa) {
	a.function("add", "(dst, a, b []float32)", "stores a + b.")
	dst, x, y, n := a.base("dst"), a.base("a"), a.base("b"), a.length("dst")
	a.each(n, func(at reg.Register, l lanes) {
		v := a.load(a.at(x, at), l)
		a.VADDPS(a.load(a.at(y, at), l), v, v)
		a.store(v, a.at(dst, at), l)
	})
	a.end()
}

const scaleDoc = `dst = s·src.`

func vecScale(a *isa) {
	a.function("scale", "(dst, src []float32, s float32)", "stores s·src.")
	dst, src, n, s := a.base("dst"), a.base("src"), a.length("dst"), a.spread(a.param("s"))
	a.each(n, func(at reg.Register, l lanes) {
		v := a.load(a.at(src, at), l)
		a.VMULPS(s, v, v)
		a.store(v, a.at(dst, at), l)
	})
	a.end()
}

const dotDoc = `
The sum of a·b, in 32 lanes.

Registers: the lanes; a vector of a, and one of b.`

func vecDot(a *isa) {
	a.function("dot", "(a, b []float32) float32", "returns the sum of a·b.")
	x, y, n := a.base("a"), a.base("b"), a.length("a")
	sum := a.sums()
	a.blocks(n, len(sum), a.floats(), func(i int, at reg.Register, l lanes) {
		u, v := a.load(a.part(x, at, i), l), a.load(a.part(y, at, i), l)
		a.VFMADD231PS(u, v, sum[i])
	})
	a.VMOVSS(a.total(sum, a.addition()), a.result(0))
	a.end()
}

const colSumDoc = `
sum += four rows of x, one after the other: the sum is read and written once for
four numbers.

Registers: v, the sums; four rows as memory operands, at rows + r·stride.`

func vecColSum(a *isa) {
	a.function("colSum", "(sum, x []float32)", "adds four rows of x, each as long as sum, to sum.")
	sum, x, n := a.base("sum"), a.base("x"), a.length("sum")
	rows := a.rows(x, n, 4)
	a.each(n, func(at reg.Register, l lanes) {
		v := a.load(a.at(sum, at), l)
		for _, row := range rows {
			a.VADDPS(a.load(a.at(row, at), l), v, v)
		}
		a.store(v, a.at(sum, at), l)
	})
	a.end()
}
