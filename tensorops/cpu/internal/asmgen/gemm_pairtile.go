package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Tiles of words: their size, and that of what they read for a pair of k.
const (
	pairRows = 12
	pairVecs = 2
	wordsA   = 4 * pairRows  // bytes
	wordsB   = 64 * pairVecs // bytes
)

const gemmPairTileDoc = `Tiles of a matrix product of bfloat16: rows of A in strips by one strip of B, both packed in words,
each a pair of consecutive k.

Register plan: as in AVX512, an accumulator for each row of C and each vector in it, a row of B in two
vectors, and A's words, each broadcast to a register once for both. VDPBF16PS multiplies and adds pairs; the
registers are named, since the assembler does not know it. There is one such product a cycle, so that
half of what a cycle may do is left over for what follows.

While a tile's sums are made, the lines of the next tile of C are on their way to the first-level cache, a row
every four pairs. Then lines of what is multiplied next are on their way to the second, one every four
pairs: all at once they would hold up what the sums need themselves. They lie in rows, some
lines in each.

Sums are stored as float32, or rounded to bfloat16 (to the nearest, ties to even; numbers below 2^-126 become zero) with a
row added to each before.`

// gemmPairTiles writes a function for each number of rows.
func gemmPairTiles(c *build.Context) {
	a := avx512(c)
	for rows := 1; rows <= pairRows; rows++ {
		gemmPairTile(a, rows)
	}
}

// gemmPairTile writes the function for a number of rows.
func gemmPairTile(a *isa, rows int) {
	name := fmt.Sprintf("tileAVX512BF16_%d", rows)
	a.Function(name)
	a.SignatureExpr("func(strips, pairs int, a, b, c *float32, ldc, right int, add bool, half *uint16, ldh int, bias *float32, next *byte, lines, perRow, skip int)")
	a.Pragma("noescape")
	a.Doc(fmt.Sprintf("%s multiplies strips of A, %d rows of each, by a strip of B: see pairTileFunc.", name, rows))

	strips, ap, b, cp, ldc := a.integer("strips"), a.integer("a"), a.integer("b"), a.integer("c"), a.integer("ldc")
	next, left := a.integer("next"), a.integer("perRow")
	a.Comment("Row r of C is at row[r/3] + (r mod 3)·ldc.")
	ldc3 := a.GP64()
	a.LEAQ(operand.Mem{Base: ldc, Index: ldc, Scale: 2}, ldc3)

	// The numbers of registers.
	acc := func(r, v int) int { return pairVecs*r + v }
	bv := func(v int) int { return pairVecs*rows + v }
	av := func(r int) int { return pairVecs*rows + pairVecs + r%4 }
	at := func(base reg.Register, disp int) operand.Mem { return operand.Mem{Base: base, Disp: disp} }

	a.Label("strip")
	bp, count, nextC, below := a.GP64(), a.GP64(), a.GP64(), a.GP64()
	a.Comment("The tile of C after this one is below, or at the right of the first one.")
	a.MOVQ(cp, nextC)
	for range rows / 3 {
		a.ADDQ(ldc3, nextC)
	}
	for range rows % 3 {
		a.ADDQ(ldc, nextC)
	}
	a.MOVQ(a.param("c"), bp)
	a.ADDQ(a.param("right"), bp)
	a.CMPQ(strips, operand.U8(1))
	a.CMOVQEQ(bp, nextC)
	a.MOVQ(operand.U32(rows), below)
	for r := range rows {
		for v := range pairVecs {
			a.VPXORD(z(acc(r, v)), z(acc(r, v)), z(acc(r, v)))
		}
	}
	a.MOVQ(b, bp)

	// step records the products of pair i from where the pointers are.
	step := func(i int) {
		for v := range pairVecs {
			a.VMOVUPS(at(bp, i*wordsB+64*v), z(bv(v)))
		}
		for r := range rows {
			a.VBROADCASTSS(at(ap, i*wordsA+4*r), z(av(r)))
			for v := range pairVecs {
				evex(a, prefixF3, 0x52, bv(v), av(r), acc(r, v))
			}
		}
	}
	const unroll = 4
	advance := func(n int) {
		a.ADDQ(operand.U32(n*wordsA), ap)
		a.ADDQ(operand.U32(n*wordsB), bp)
	}
	a.MOVQ(a.param("pairs"), count)
	a.SUBQ(operand.U8(unroll), count)
	a.JL(a.jump("rest"))
	a.Label("four")
	for i := range unroll {
		step(i)
		if v := i * 64; v < 64*pairVecs {
			a.PREFETCHT0(at(nextC, v))
		}
	}
	advance(unroll)
	a.ADDQ(ldc, nextC)
	a.SUBQ(operand.U8(unroll), count)
	a.JL(a.jump("rest"))
	a.DECQ(below)
	a.JNZ(a.jump("four"))
	a.Label("more")
	for i := range unroll {
		step(i)
		if i == 1 {
			fetchLine(a, next, left)
		}
	}
	advance(unroll)
	a.SUBQ(operand.U8(unroll), count)
	a.JGE(a.jump("more"))
	a.Label("rest")
	a.ADDQ(operand.U8(unroll), count)
	a.JZ(a.jump("store"))
	a.Label("one")
	step(0)
	advance(1)
	a.DECQ(count)
	a.JNZ(a.jump("one"))

	a.Label("store")
	// each visits the rows of C, or of what lies like it, and moves the pointer below them.
	each := func(base, ld, ld3 reg.Register, visit func(r int, row operand.Mem)) {
		for r := range rows {
			m := at(base, 0)
			if r%3 > 0 {
				m.Index, m.Scale = ld, uint8(r%3)
			}
			visit(r, m)
			if r%3 == 2 {
				a.ADDQ(ld3, base)
			}
		}
		for range rows % 3 {
			a.ADDQ(ld, base)
		}
	}
	store := func(r int, row operand.Mem) {
		for v := range pairVecs {
			a.VMOVUPS(z(acc(r, v)), row.Offset(64*v))
		}
	}
	sum := func(r int, row operand.Mem) {
		for v := range pairVecs {
			a.VADDPS(row.Offset(64*v), z(acc(r, v)), z(acc(r, v)))
		}
	}
	add := a.Load(a.Param("add"), a.GP8()) // there is no register to keep it in
	out, ldh, ldh3 := bp, count, nextC
	a.MOVQ(a.param("half"), out)
	a.TESTQ(out, out)
	a.JNZ(a.jump("half"))
	a.TESTB(add, add)
	a.JZ(a.jump("replace"))
	each(cp, ldc, ldc3, func(r int, row operand.Mem) {
		sum(r, row)
		store(r, row)
	})
	a.DECQ(strips)
	a.JNZ(a.jump("strip"))
	a.JMP(a.jump("done"))
	a.Label("replace")
	each(cp, ldc, ldc3, store)
	a.DECQ(strips)
	a.JNZ(a.jump("strip"))
	a.JMP(a.jump("done"))

	a.Label("half")
	a.TESTB(add, add)
	a.JZ(a.jump("summed"))
	each(cp, ldc, ldc3, sum)
	a.JMP(a.jump("whole"))
	a.Label("summed")
	each(cp, ldc, ldc3, func(int, operand.Mem) {})
	a.Label("whole")
	a.MOVQ(a.param("bias"), below)
	a.TESTQ(below, below)
	a.JZ(a.jump("round"))
	for v := range pairVecs {
		a.VMOVUPS(at(below, 64*v), z(bv(v)))
	}
	for r := range rows {
		for v := range pairVecs {
			a.VADDPS(z(bv(v)), z(acc(r, v)), z(acc(r, v)))
		}
	}
	a.Label("round")
	a.MOVQ(a.param("ldh"), ldh)
	a.LEAQ(operand.Mem{Base: ldh, Index: ldh, Scale: 2}, ldh3)
	each(out, ldh, ldh3, func(r int, row operand.Mem) {
		roundBF16(a, acc(r, 1), acc(r, 0), acc(r, 0))
		a.VMOVUPS(z(acc(r, 0)), row)
	})
	a.MOVQ(out, a.param("half"))
	a.DECQ(strips)
	a.JNZ(a.jump("strip"))
	a.Label("done")
	a.end()
}
