package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// A reduction over a row has the same number of lanes on every path: 32 of float32,
// 16 of float64. Element i goes to lane i mod 32 (or 16), and lanes are combined
// by halves: i with i + 16, then with i + 8, and so on.
const (
	reduceLanes   = 32
	reduceDoubles = 16
)

// sums is a set of cleared lanes of float32.
func (a *isa) sums() []reg.VecVirtual { return a.cleared(reduceLanes / a.floats()) }

// doubles is a set of cleared lanes of float64.
func (a *isa) doubles() []reg.VecVirtual { return a.cleared(reduceDoubles / (a.floats() / 2)) }

func (a *isa) cleared(count int) []reg.VecVirtual {
	v := a.vecs(count)
	for i := range v {
		a.zero(v[i])
	}
	return v
}

// combine puts the combination of low and high into low.
type combine func(high, low reg.Register)

func (a *isa) addition() combine {
	return func(high, low reg.Register) { a.VADDPS(high, low, low) }
}

func (a *isa) additionDouble() combine {
	return func(high, low reg.Register) { a.VADDPD(high, low, low) }
}

// total combines all lanes of float32; the result is the lowest.
func (a *isa) total(v []reg.VecVirtual, op combine) reg.Register {
	x, h := a.quarter(v, op), a.XMM()
	a.VMOVHLPS(x, x, h)
	op(h, x)
	a.VMOVSHDUP(x, h)
	op(h, x)
	return x
}

// totalDouble combines all lanes of float64.
func (a *isa) totalDouble(v []reg.VecVirtual) reg.Register {
	x, h := a.quarter(v, a.additionDouble()), a.XMM()
	a.VUNPCKHPD(x, x, h)
	a.VADDPD(h, x, x)
	return x
}

// quarter combines vectors down to one of 128 bits.
func (a *isa) quarter(v []reg.VecVirtual, op combine) reg.Register {
	for n := len(v) / 2; n > 0; n /= 2 {
		for i := range n {
			op(v[i+n], v[i])
		}
	}
	y := v[0].AsY()
	if a.zmm {
		h := a.YMM()
		a.VEXTRACTF64X4(operand.U8(1), v[0], h)
		op(h, y)
	}
	h := a.XMM()
	a.VEXTRACTF128(operand.U8(1), y, h)
	op(h, v[0].AsX())
	return v[0].AsX()
}
