package main

import (
	"strings"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const addDoc = `
dst = a + b, or a + b + c, or a + b + c + d, one after the other: several operands at once, since memory that lies in
several places is read faster along all of them than first along one and then along the next.`

// operandNames are what the operands of a sum are called.
var operandNames = []string{"a", "b", "c", "d"}

// sumOf is a loop's signature, its comment, and what its name ends with.
func sumOf(operands int) (signature, doc, suffix string) {
	names := operandNames[:operands]
	return "(dst, " + strings.Join(names, ", ") + " []float32)", "stores " + strings.Join(names, " + "),
		[]string{2: "", "Three", "Four"}[operands]
}

func vecAdd(a *isa) {
	for operands := 2; operands <= len(operandNames); operands++ {
		signature, doc, suffix := sumOf(operands)
		a.function("add"+suffix, signature, doc+".")
		dst, x, n := a.base("dst"), a.bases(operandNames[:operands]), a.length("dst")
		a.each(n, func(at reg.Register, l lanes) {
			v := a.load(a.at(x[0], at), l)
			for _, y := range x[1:] {
				a.VADDPS(a.load(a.at(y, at), l), v, v)
			}
			a.store(v, a.at(dst, at), l)
		})
		a.end()
	}
}

const addPastDoc = `
The sums of two to four operands, stored past the caches: memory is not read before it is written. dst begins at a multiple
of 64 bytes and has a multiple of 16 elements, one at least.`

func vecAddPast(a *isa) {
	for operands := 2; operands <= len(operandNames); operands++ {
		signature, doc, suffix := sumOf(operands)
		a.function("add"+suffix+"Past", signature, doc+" past the caches.")
		dst, x, n := a.base("dst"), a.bases(operandNames[:operands]), a.length("dst")
		at, loop := a.GP64(), a.label("loop")
		a.XORQ(at, at)
		a.Label(loop)
		v := a.vec()
		a.VMOVUPS(a.at(x[0], at), v)
		for _, y := range x[1:] {
			a.VADDPS(a.at(y, at), v, v)
		}
		a.VMOVNTPS(v, a.at(dst, at))
		a.ADDQ(operand.U8(a.bytes()), at)
		a.SUBQ(operand.U8(a.floats()), n)
		a.JG(a.jump(loop))
		a.SFENCE() // before anybody is told
		a.end()
	}
}

// bases loads the addresses of slices.
func (a *isa) bases(slices []string) (list []reg.GPVirtual) {
	for _, name := range slices {
		list = append(list, a.base(name))
	}
	return list
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
