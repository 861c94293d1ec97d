package main

import (
	"slices"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const dropDoc = `
drop: y = scale·(x where keep). dropAdd: that plus skip. keep is a mask of ones
or zeros for each element, so that a dropped NaN is 0.

Registers: v; scale.`

func vecDrop(a *isa) {
	a.function("drop", "(y, x []float32, keep []uint32, scale float32)", "stores scale·x where keep is set, else 0.")
	a.drop(false)
	a.function("dropAdd", "(y, x []float32, keep []uint32, skip []float32, scale float32)",
		"stores scale·x + skip where keep is set, else skip.")
	a.drop(true)
}

func (a *isa) drop(add bool) {
	y, x, keep, n, scale := a.base("y"), a.base("x"), a.base("keep"), a.length("y"), a.spread(a.param("scale"))
	var skip reg.GPVirtual
	if add {
		skip = a.base("skip")
	}
	a.each(n, func(at reg.Register, l lanes) {
		v := a.load(a.at(x, at), l)
		a.VANDPS(a.load(a.at(keep, at), l), v, v)
		a.VMULPS(scale, v, v)
		if add {
			a.VADDPS(a.load(a.at(skip, at), l), v, v)
		}
		a.store(v, a.at(y, at), l)
	})
	a.end()
}

const keepDoc = `
Philox4x32-10: four words for each block. random stores them; keep stores masks
that say whether they reach a threshold.

A 64-bit lane holds one block's word in its lower half; the upper is whatever is
left there, since the multiplication reads lower halves alone. A round is

	c0, c1, c2, c3 = hi(B·c2) ^ c1 ^ k0, lo(B·c2), hi(A·c0) ^ c3 ^ k1, lo(A·c0)

The lanes' blocks are in such an order that two rounds of VSHUFPS put the words
in theirs. 32 words at a time: two vectors of blocks on AVX2, so that one's
rounds fill the gaps of the other's, and one on AVX-512.

Registers: count, the blocks' numbers; c0 to c3 of each vector; p, q, the
products; k0, k1, a round's keys; A, B; the threshold.`

func vecKeep(a *isa) {
	a.function("keep", "(keep []uint32, keys [20]uint32, stepLow, stepHigh uint32, block uint64, threshold uint32)",
		"stores ones for words that reach the threshold and zeros for others: four of each",
		"block from the given one on. Their number is a multiple of 32; keys are those of the ten rounds.")
	threshold := a.spread(a.param("threshold"))
	a.philox("keep", func(words reg.VecVirtual) { a.reaches(threshold, words) })
	a.function("random", "(words []uint32, keys [20]uint32, stepLow, stepHigh uint32, block uint64)",
		"stores random words: four of each block from the given one on. Their number is a multiple of 32; keys are",
		"those of the ten rounds.")
	a.philox("words", nil)
}

// philox stores the words of blocks in a parameter, after then has changed them.
func (a *isa) philox(to string, then func(words reg.VecVirtual)) {
	out, n := a.base(to), a.length(to)
	mulA, mulB := a.copy(a.bits(0xD2511F53)), a.copy(a.bits(0xCD9E8D57))
	count := a.vec()
	a.VPBROADCASTQ(a.param("block"), count)
	a.VPADDQ(a.blockOrder(), count, count)
	key := func(i int) operand.Mem { return a.address(a.Param("keys").Index(i)) }
	blocks := uint64(a.floats() / 2) // in a vector
	next := a.table("blocks", slices.Repeat([]uint64{blocks}, int(blocks)))
	loop, done := a.label("loop"), a.label("done")
	a.TESTQ(n, n)
	a.JZ(a.jump(done))
	a.Label(loop)
	groups := make([][4]reg.VecVirtual, 8/blocks)
	for g := range groups {
		c := [4]reg.VecVirtual{a.copy(count), a.vec(), a.spread(a.param("stepLow")), a.spread(a.param("stepHigh"))}
		a.VPSRLQ(operand.U8(32), count, c[1])
		a.VPADDQ(next, count, count)
		groups[g] = c
	}
	for round := range 10 {
		k0, k1 := a.spread(key(round)), a.spread(key(10+round))
		for g, c := range groups {
			p, q := a.vec(), a.vec()
			a.VPMULUDQ(mulA, c[0], p)
			a.VPMULUDQ(mulB, c[2], q)
			a.VPSRLQ(operand.U8(32), q, c[0])
			a.VPSRLQ(operand.U8(32), p, c[2])
			a.xor(k0, c[1], c[0])
			a.xor(k1, c[3], c[2])
			groups[g] = [4]reg.VecVirtual{c[0], q, c[2], p}
		}
	}
	for g, c := range groups {
		a.Comment("Of two blocks in a lane of 128 bits, the words 0 and 1 and the words 2 and 3; then block after block.")
		a.VSHUFPS(operand.U8(0x88), c[1], c[0], c[0])
		a.VSHUFPS(operand.U8(0x88), c[3], c[2], c[2])
		a.VSHUFPS(operand.U8(0x88), c[2], c[0], c[1])
		a.VSHUFPS(operand.U8(0xDD), c[2], c[0], c[3])
		for i, v := range []reg.VecVirtual{c[1], c[3]} {
			if then != nil {
				then(v)
			}
			a.VMOVUPS(v, operand.Mem{Base: out, Disp: (2*g + i) * a.bytes()})
		}
	}
	a.ADDQ(operand.I32(4*32), out)
	a.SUBQ(operand.U8(32), n)
	a.JNZ(a.jump(loop))
	a.Label(done)
	a.end()
}

// reaches replaces words by ones where they are at least the threshold, and by
// zeros elsewhere.
func (a *isa) reaches(threshold, v reg.VecVirtual) {
	if a.zmm {
		k := a.K()
		const notLess = 5
		a.VPCMPUD(operand.U8(notLess), threshold, v, k)
		a.VPMOVM2D(k, v)
		return
	}
	top := a.vec()
	a.VPMAXUD(threshold, v, top)
	a.VPCMPEQD(top, v, v)
}

// blockOrder is which of the loop's blocks each 64-bit lane holds.
func (a *isa) blockOrder() operand.Mem {
	if a.zmm {
		return a.table("order", []uint64{0, 4, 1, 5, 2, 6, 3, 7})
	}
	return a.table("order", []uint64{0, 2, 1, 3})
}

// xor replaces z by x ^ y ^ z, and may change y.
func (a *isa) xor(x, y, z reg.VecVirtual) {
	if a.zmm {
		const odd = 0x96 // the truth table of three bits' parity
		a.VPTERNLOGD(operand.U8(odd), x, y, z)
		return
	}
	a.VPXOR(x, y, y)
	a.VPXOR(y, z, z)
}
