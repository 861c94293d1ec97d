package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// lanes says which lanes of a vector hold elements: all of them (nil), or those
// that a mask register names.
type lanes struct{ mask reg.Register }

var all = lanes{}

// load reads a vector; lanes without an element are 0 and their memory is not
// touched.
func (a *isa) load(m operand.Mem, l lanes) reg.VecVirtual {
	v := a.vec()
	switch {
	case l.mask == nil:
		a.VMOVUPS(m, v)
	case a.zmm:
		a.VMOVUPS_Z(m, l.mask, v)
	default:
		a.VMASKMOVPS(m, l.mask, v)
	}
	return v
}

// store writes the lanes that hold elements.
func (a *isa) store(v reg.Register, m operand.Mem, l lanes) {
	switch {
	case l.mask == nil:
		a.VMOVUPS(v, m)
	case a.zmm:
		a.VMOVUPS(v, l.mask, m)
	default:
		a.VMASKMOVPS(v, l.mask, m)
	}
}

// clear puts 0 into the lanes without an element.
func (a *isa) clear(v reg.VecVirtual, l lanes) {
	switch {
	case l.mask == nil:
	case a.zmm:
		a.VMOVAPS_Z(v, l.mask, v)
	default:
		a.VANDPS(l.mask, v, v)
	}
}

// first makes the lanes of the first n elements of count vectors, 0 < n <
// count·floats, n in elements.
func (a *isa) first(n reg.GPVirtual, count int) []lanes {
	ls := make([]lanes, count)
	if a.zmm {
		bits := a.GP64()
		a.MOVQ(operand.I32(-1), bits)
		a.SHLXQ(n, bits, bits)
		a.NOTQ(bits)
		for i := range ls {
			k := a.K()
			a.KMOVW(bits.As32(), k)
			if i+1 < count {
				a.SHRQ(operand.U8(16), bits)
			}
			ls[i] = lanes{k}
		}
		return ls
	}
	// A window over as many ones as there are lanes, and as many zeros.
	window := a.GP64()
	a.LEAQ(a.ones(count*a.floats()), window)
	a.NEGQ(n)
	for i := range ls {
		m := a.vec()
		a.VMOVUPS(operand.Mem{Base: window, Index: n, Scale: 4, Disp: 4*count*a.floats() + 32*i}, m)
		ls[i] = lanes{m}
	}
	a.NEGQ(n)
	return ls
}

// ones is a table of n lanes of ones and n of zeros.
func (a *isa) ones(n int) operand.Mem {
	if a.tables == nil {
		a.tables = map[int]operand.Mem{}
	}
	if m, ok := a.tables[n]; ok {
		return m
	}
	m := a.StaticGlobal("ones")
	a.DataAttributes(attr.RODATA | attr.NOPTR)
	for i := range n {
		d := uint64(0)
		if i < n/2 {
			d = 1<<64 - 1
		}
		a.AppendDatum(operand.U64(d))
	}
	a.tables[n] = m
	return m
}

// each loops over n elements, a vector at a time, the last one in part. body
// gets the distance in bytes from the first element; it may be the same code
// for all lanes and for some, so that an element's result does not depend on
// its place.
func (a *isa) each(n reg.GPVirtual, body func(at reg.Register, l lanes)) {
	loop, rest, done := a.label("loop"), a.label("rest"), a.label("done")
	at := a.GP64()
	a.XORQ(at, at)
	a.SUBQ(operand.U8(a.floats()), n)
	a.JL(a.jump(rest))
	a.Label(loop)
	body(at, all)
	a.ADDQ(operand.U8(a.bytes()), at)
	a.SUBQ(operand.U8(a.floats()), n)
	a.JGE(a.jump(loop))
	a.Label(rest)
	a.ADDQ(operand.U8(a.floats()), n)
	a.JZ(a.jump(done))
	body(at, a.first(n, 1)[0])
	a.Label(done)
}

// blocks loops over n elements, a block of count vectors at a time, the last one
// in part. A fold over a row adds element i of it to lane i mod (count·floats).
func (a *isa) blocks(n reg.GPVirtual, count int, body func(i int, at reg.Register, l lanes)) {
	loop, rest, done := a.label("loop"), a.label("rest"), a.label("done")
	size := count * a.floats()
	at := a.GP64()
	a.XORQ(at, at)
	a.SUBQ(operand.U8(size), n)
	a.JL(a.jump(rest))
	a.Label(loop)
	for i := range count {
		body(i, at, all)
	}
	a.ADDQ(operand.U32(4*size), at)
	a.SUBQ(operand.U8(size), n)
	a.JGE(a.jump(loop))
	a.Label(rest)
	a.ADDQ(operand.U8(size), n)
	a.JZ(a.jump(done))
	for i, l := range a.first(n, count) {
		body(i, at, l)
	}
	a.Label(done)
}

// at is the memory at a distance from a base.
func (a *isa) at(base, distance reg.Register) operand.Mem {
	return operand.Mem{Base: base, Index: distance, Scale: 1}
}
