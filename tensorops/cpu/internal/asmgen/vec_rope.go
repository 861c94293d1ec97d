package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const ropeDoc = `
For each head: a, b = a·cos − b·sin, b·cos + a·sin. The heads are stride elements
apart and share the cosines and sines.

Registers: p, q of a head; u, v, the results; c, s.`

func vecRoPE(a *isa) {
	a.function("rope", "(a, b *float32, cos, sin []float32, heads, stride int)",
		"turns the pairs of the heads' elements at a and b, as many as there are cosines.")
	x, y, cos, sin := a.integer("a"), a.integer("b"), a.base("cos"), a.base("sin")
	heads, stride, n := a.integer("heads"), a.integer("stride"), a.GP64()
	head, done := a.label("head"), a.label("end")
	a.SHLQ(operand.U8(2), stride)
	a.TESTQ(heads, heads)
	a.JLE(a.jump(done))
	a.Label(head)
	a.MOVQ(a.address(a.Param("cos").Len()), n)
	a.each(n, func(at reg.Register, l lanes) {
		p, q := a.load(a.at(x, at), l), a.load(a.at(y, at), l)
		c, s := a.load(a.at(cos, at), l), a.load(a.at(sin, at), l)
		u, v := a.vec(), a.vec()
		a.VMULPS(s, q, u)
		a.VFMSUB231PS(c, p, u)
		a.VMULPS(s, p, v)
		a.VFMADD231PS(c, q, v)
		a.store(u, a.at(x, at), l)
		a.store(v, a.at(y, at), l)
	})
	a.ADDQ(stride, x)
	a.ADDQ(stride, y)
	a.DECQ(heads)
	a.JNZ(a.jump(head))
	a.Label(done)
	a.end()
}
