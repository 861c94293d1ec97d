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
