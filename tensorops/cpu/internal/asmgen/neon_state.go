package main

import "math"

// neonVecState has no loops that read codes: a table of all values in memory is as fast with vectors of 128 bits.
func neonVecState(n *neon) {
	n.start("roundHalvesNEON", "(dst []uint16, src []float32, halves []uint16)",
		"rounds to bfloat16 by random bits. The length is a multiple of 32.")
	n.roundHalves()
	n.start("largestNEON", "(x []float32) uint32", "returns the bits of the largest magnitude, where those of a NaN are above all others.")
	n.largest()
	for _, c := range []*dynamicCode{signedCode, rootCode} {
		n.start("encode"+c.name+"NEON", "(codes []byte, x []float32, halves []uint16, scale float32)",
			"stores the codes of finite numbers, rounded by random bits. The length is a multiple of 32.")
		n.encodeState(c)
	}
}

func (n *neon) roundHalves() {
	dst, src, halves, count := n.base("dst"), n.base("src"), n.base("halves"), n.length("dst")
	n.constants()
	exponent, quiet := n.bits(0x7f800000), n.bits(0x00400000)
	n.steps(count, 8, []gp{dst, src, halves}, []int{2, 4, 2}, func(at int) {
		x, h, up, t := n.loadAt(src, 4*at), n.v(), n.pair(), n.pair()
		n.memory("FMOVQ", halves, 2*at, true, h)
		n.ins("VUXTL", h.h4(), up[0].s4())
		n.ins("VUXTL2", h.h8(), up[1].s4())
		n.lanes("VADD", x, up, up)
		n.logic("VAND", up, spread(exponent), t)
		n.lanes("VCMEQ", t, spread(exponent), t)
		n.logic("VBIT", t, x, up)
		n.three(opFCMEQ, t, x, x)
		n.logic("VORR", x, spread(quiet), x)
		n.logic("VBIF", t, x, up)
		n.enc(upperHalves(h, up[0], false), upperHalves(h, up[1], true))
		n.memory("FMOVQ", dst, 2*at, false, h)
	})
	n.end()
}

func (n *neon) largest() {
	x, count := n.in("x"), n.length("x")
	top, zero := n.lanes32(), n.v()
	n.zero(zero)
	n.blocks(count, len(top), &zero, []*stream{x}, func(i int, a *access) {
		p := a.load(x)
		for j := range p {
			n.enc(opFABS.s(p[j], p[j]))
		}
		n.three(opUMAX, top[i], top[i], p)
	})
	n.result("FMOVS", 0, n.total(top, opUMAX, pairLargest))
	n.end()
}

// neonLines are the tables of a code, each in two registers that follow each other, and what makes places in them of exponents.
type neonLines struct {
	steep, base, steepRest, baseRest, rate [2]v
	seven, four, places                    v
}

func (n *neon) codeLines(c *dynamicCode) (l neonLines) {
	from := n.gp()
	n.ins("MOVD", "$tables<>(SB)", from)
	var rate [8]float32
	copy(rate[:], c.rate)
	l.steep, l.base = n.loadTable(from, c.steep), n.loadTable(from, c.base)
	l.steepRest, l.baseRest = n.loadTable(from, c.steepRest), n.loadTable(from, c.baseRest)
	l.rate = n.loadTable(from, rate)
	l.seven, l.four, l.places = n.bits(7), n.bits(0x04040404), n.bits(0x03020100)
	return l
}

// loadTable adds eight numbers to the file's tables, and loads them into two registers that follow each other.
func (n *neon) loadTable(from gp, of [8]float32) [2]v {
	low, high := n.v(), n.v()
	if high != low+1 {
		panic(n.ir.Name + ": the registers of a table must follow each other")
	}
	n.memory("FLDPQ", from, 4*len(n.tables), true, low, high)
	for _, f := range of {
		n.tables = append(n.tables, math.Float32bits(f))
	}
	return [2]v{low, high}
}

// value stores the values of the numbers x in y.
func (n *neon) value(l *neonLines, y, x v) {
	n.scoped(func() {
		place, t := n.v(), n.v()
		look := func(d v, table [2]v) {
			n.ins("VTBL", place.b(), "["+table[0].b()+", "+table[1].b()+"]", d.b())
		}
		n.ins("VUSHR", imm(23), x.s4(), place.s4())
		n.ins("VAND", place.b(), l.seven.b(), place.b())
		n.enc(product32(place, place, l.four))
		n.ins("VADD", place.s4(), l.places.s4(), place.s4())
		look(y, l.base)
		look(t, l.steep)
		n.ins("VFMLA", x.s4(), t.s4(), y.s4())
		look(t, l.baseRest)
		look(place, l.steepRest)
		n.ins("VFMLA", x.s4(), place.s4(), t.s4())
		n.enc(opFADD.s(y, y, t))
	})
}

func (n *neon) encodeState(c *dynamicCode) {
	codes, from, halves, count := n.base("codes"), n.base("x"), n.base("halves"), n.length("codes")
	n.constants()
	l := n.codeLines(c)
	scale, more, two, down := n.scalar("scale"), n.number(2.5), n.number(2), n.number(-1)
	half, ones, bit := n.number(1.0/(1<<17)), n.bits(math.MaxUint32), v(0)
	if c == rootCode {
		bit = n.bits(1)
	} else {
		bit = n.bits(0x80)
	}
	n.steps(count, 8, []gp{codes, from, halves}, []int{1, 4, 2}, func(at int) {
		both := n.pair()
		for i, code := range both {
			n.scoped(func() {
				r, other, y, o := n.v(), n.v(), n.v(), n.v()
				n.memory("FMOVQ", from, 4*at+16*i, true, r)
				n.enc(opFABS.s(r, r))
				if c == rootCode {
					n.enc(opFSQRT.s(r, r))
				}
				n.enc(opFDIV.s(r, r, scale))
				next := code
				for j, start := range c.start {
					t := next
					if j > 0 {
						t = o
					}
					n.ins("FMOVQ", n.constant(math.Float32bits(start)), t.f())
					n.enc(fmlaElement(t, r, l.rate[j/4], j%4))
					if j > 0 {
						n.enc(opFMIN.s(next, next, t))
					}
				}
				n.enc(opFRINTM.s(next, next), opFADD.s(next, next, more))
				n.value(&l, y, next)
				n.enc(opFCMGE.s(other, r, y))
				n.ins("VAND", other.b(), two.b(), other.b())
				n.enc(opFADD.s(other, other, down), opFADD.s(other, other, next))
				n.value(&l, o, other)
				n.enc(opFMIN.s(next, next, other))
				w, h := other, n.v()
				n.enc(opFMAX.s(w, y, o), opFMIN.s(y, y, o))
				n.memory("FMOVD", halves, 2*at+8*i, true, h)
				n.ins("VUXTL", h.h4(), h.s4())
				n.enc(fraction16(h, h), opFADD.s(h, h, half))
				// d and g are differences to the lower value y, and then what they lack.
				d, g := o, n.v()
				n.enc(opFSUB.s(d, r, y), opFSUB.s(g, w, y))
				n.scoped(func() {
					dLacks, gLacks := n.v(), n.v()
					n.enc(opFSUB.s(dLacks, r, d), opFSUB.s(dLacks, dLacks, y), opFSUB.s(gLacks, w, g), opFSUB.s(gLacks, gLacks, y))
					n.ins("VFMLS", g.s4(), h.s4(), d.s4())
					n.ins("VFMLS", gLacks.s4(), h.s4(), dLacks.s4())
					n.enc(opFADD.s(d, d, dLacks), above0(d, d))
				})
				n.enc(opFCVTZU.s(code, next))
				n.ins("VSUB", d.s4(), code.s4(), code.s4())
				n.ins("VADD", ones.s4(), code.s4(), code.s4())
				if c == rootCode { // a number above 0 has no code 0
					n.ins("VUMIN", bit.s4(), r.s4(), r.s4())
					n.ins("VUMAX", r.s4(), code.s4(), code.s4())
					return
				}
				n.memory("FMOVQ", from, 4*at+16*i, true, r)
				n.ins("VUSHR", imm(24), r.s4(), r.s4())
				n.ins("VAND", bit.b(), r.b(), r.b())
				n.ins("VCMTST", code.s4(), code.s4(), d.s4()) // no sign of 0
				n.ins("VAND", d.b(), r.b(), r.b())
				n.ins("VORR", r.b(), code.b(), code.b())
			})
		}
		n.ins("VUZP1", both[1].h8(), both[0].h8(), both[0].h8())
		n.ins("VUZP1", both[0].b(), both[0].b(), both[0].b())
		n.memory("FMOVD", codes, at, false, both[0])
	})
	n.end()
}
