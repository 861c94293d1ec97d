package main

import (
	"fmt"
	"slices"

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

// loadOr reads a vector; lanes without an element are those of other.
func (a *isa) loadOr(m operand.Mem, l lanes, other reg.VecVirtual) reg.VecVirtual {
	if l.mask == nil {
		return a.load(m, l)
	}
	if a.zmm {
		v := a.copy(other)
		a.VMOVUPS(m, l.mask, v)
		return v
	}
	v := a.load(m, l)
	a.VBLENDVPS(l.mask, v, other, v)
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

// first prepares the lanes of the first n elements of count parts of width
// elements, for 0 < n < count·width. The result makes those of part i; it is
// called in the order of the parts.
func (a *isa) first(n reg.GPVirtual, count, width int) func(i int) lanes {
	if a.zmm {
		bits := a.GP64()
		a.MOVQ(operand.I32(-1), bits)
		a.SHLXQ(n, bits, bits)
		a.NOTQ(bits)
		return func(i int) lanes {
			if i > 0 {
				a.SHRQ(operand.U8(width), bits)
			}
			k := a.K()
			a.KMOVW(bits.As32(), k)
			return lanes{k}
		}
	}
	// A window over as many lanes of ones as there are elements, and as many of
	// zeros.
	size := count * width
	ones := a.table(fmt.Sprintf("ones_%d", size), slices.Concat(slices.Repeat([]uint64{1<<64 - 1}, size/2), make([]uint64, size/2)))
	window := a.GP64()
	a.LEAQ(ones.Offset(4*size), window)
	a.NEGQ(n)
	return func(i int) lanes {
		m := a.vec()
		a.VMOVUPS(operand.Mem{Base: window, Index: n, Scale: 4, Disp: 4 * width * i}, m)
		return lanes{m}
	}
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
	body(at, a.first(n, 1, a.floats())(0))
	a.Label(done)
}

// blocks loops over n elements, a block of count parts of width elements at a
// time, the last one in part. A reduction over a row adds element i of it to lane
// i mod (count·width).
func (a *isa) blocks(n reg.GPVirtual, count, width int, body func(i int, at reg.Register, l lanes)) {
	loop, rest, done := a.label("loop"), a.label("rest"), a.label("done")
	size := count * width
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
	some := a.first(n, count, width)
	for i := range count {
		body(i, at, some(i))
	}
	a.Label(done)
}

// at is the memory at a distance from a base.
func (a *isa) at(base, distance reg.Register) operand.Mem {
	return operand.Mem{Base: base, Index: distance, Scale: 1}
}

// part is vector i of the block at a distance from a base.
func (a *isa) part(base, distance reg.Register, i int) operand.Mem {
	return a.at(base, distance).Offset(i * a.bytes())
}

// rows are the addresses of rows of n elements, one after the other.
func (a *isa) rows(first, n reg.GPVirtual, count int) []reg.GPVirtual {
	rows := []reg.GPVirtual{first}
	for len(rows) < count {
		r := a.GP64()
		a.LEAQ(operand.Mem{Base: rows[len(rows)-1], Index: n, Scale: 4}, r)
		rows = append(rows, r)
	}
	return rows
}
