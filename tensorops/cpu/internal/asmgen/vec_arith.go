package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

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

const addPastDoc = `
dst = a + b, stored past the caches: memory is not read before it is written. dst begins at a multiple of 64
bytes and has a multiple of 16 elements, one at least.`

func vecAddPast(a *isa) {
	a.function("addPast", "(dst, a, b []float32)", "stores a + b past the caches.")
	dst, x, y, n := a.base("dst"), a.base("a"), a.base("b"), a.length("dst")
	at, loop := a.GP64(), a.label("loop")
	a.XORQ(at, at)
	a.Label(loop)
	v := a.vec()
	a.VMOVUPS(a.at(x, at), v)
	a.VADDPS(a.at(y, at), v, v)
	a.VMOVNTPS(v, a.at(dst, at))
	a.ADDQ(operand.U8(a.bytes()), at)
	a.SUBQ(operand.U8(a.floats()), n)
	a.JG(a.jump(loop))
	a.SFENCE() // before anybody is told
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
