package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// gemmShape is the tile of a matrix product on one path.
type gemmShape struct {
	suffix string // of the function's name
	mr     int    // rows
	vecs   int    // vectors in a row
	bytes  int    // in a vector
	zmm    bool
}

var (
	gemmAVX2   = gemmShape{suffix: "AVX2", mr: 6, vecs: 2, bytes: 32}
	gemmAVX512 = gemmShape{suffix: "AVX512", mr: 12, vecs: 2, bytes: 64, zmm: true}
)

// gemmTiles writes a function for each number of rows.
func gemmTiles(c *build.Context, s gemmShape) {
	for rows := 1; rows <= s.mr; rows++ {
		gemmTile(c, s, rows)
	}
}

const gemmTileDoc = `Tiles of a matrix product: rows of A in strips by one strip of B.

Register plan: an accumulator for each row of C and each vector in it; a row of
B in two vectors; A's numbers, each broadcast to a register once for both (as the
multiply-add's memory operand it would be read twice, and two reads a cycle are all
there are). With 6 × 2 accumulators of 16 registers
(AVX2) and 12 × 2 of 32 (AVX-512) there are more independent sums than two
multiply-adds a cycle take cycles, so that two can start in every cycle; and B is
read once for all rows.

While a tile's sums are made, the lines of the next tile of C are on their way to the
first-level cache, a row every four k. Then lines of what is multiplied next are on their way to the
second, one every four k: all at once they would hold up what the sums need themselves. They lie in rows,
some lines in each.`

// fetchLine asks for the next line of some rows of memory, of which lines are left: see Memory of package gemm. left counts those of a row.
func fetchLine(a *isa, next, left reg.GPVirtual) {
	a.SUBQ(operand.U8(1), a.param("lines"))
	a.JL(a.jump("fetched"))
	a.PREFETCHT1(operand.Mem{Base: next})
	a.ADDQ(operand.U8(64), next)
	a.DECQ(left)
	a.JNZ(a.jump("fetched"))
	a.MOVQ(a.param("perRow"), left)
	a.ADDQ(a.param("skip"), next)
	a.Label("fetched")
}

// gemmTile writes the function for a number of rows.
func gemmTile(c *build.Context, s gemmShape, rows int) {
	c.Function(fmt.Sprintf("tile%s_%d", s.suffix, rows))
	c.SignatureExpr("func(strips, k int, a, b, c *float32, lda, ldb, ldc int, add bool, next *byte, lines, perRow, skip int)")
	c.Pragma("noescape")
	c.Doc(fmt.Sprintf("tile%s_%d multiplies strips of A, %d rows of each, by a strip of B: see tileFunc.", s.suffix, rows, rows))

	strips := c.Load(c.Param("strips"), c.GP64()).(reg.GPVirtual)
	a := c.Load(c.Param("a"), c.GP64()).(reg.GPVirtual)
	b := c.Load(c.Param("b"), c.GP64()).(reg.GPVirtual)
	cp := c.Load(c.Param("c"), c.GP64()).(reg.GPVirtual)
	lda := c.Load(c.Param("lda"), c.GP64()).(reg.GPVirtual)
	ldb := c.Load(c.Param("ldb"), c.GP64()).(reg.GPVirtual)
	ldc := c.Load(c.Param("ldc"), c.GP64()).(reg.GPVirtual)
	c.SHLQ(operand.U8(2), lda)
	c.SHLQ(operand.U8(2), ldb)
	c.Comment("Row r of C is at row[r/3] + (r mod 3)·ldc.")
	c.SHLQ(operand.U8(2), ldc)
	ldc3 := c.GP64()
	c.LEAQ(operand.Mem{Base: ldc, Index: ldc, Scale: 2}, ldc3)

	vector := func() reg.Register {
		if s.zmm {
			return c.ZMM()
		}
		return c.YMM()
	}
	acc := make([][]reg.Register, rows)
	for r := range acc {
		acc[r] = make([]reg.Register, s.vecs)
		for v := range acc[r] {
			acc[r][v] = vector()
		}
	}
	bv := make([]reg.Register, s.vecs)
	for v := range bv {
		bv[v] = vector()
	}
	av := make([]reg.Register, 2)
	if s.zmm {
		av = make([]reg.Register, 4)
	}
	for i := range av {
		av[i] = vector()
	}
	at := func(base reg.Register, disp int) operand.Mem { return operand.Mem{Base: base, Disp: disp} }
	param := avx512(c).param

	next := c.Load(c.Param("next"), c.GP64()).(reg.GPVirtual)
	left := c.Load(c.Param("perRow"), c.GP64()).(reg.GPVirtual)
	c.Label("strip")
	bp, count, nextC, below := c.GP64(), c.GP64(), c.GP64(), c.GP64()
	c.Comment("The tile of C after this one is below, or at the right of the first one.")
	c.MOVQ(cp, nextC)
	for range rows / 3 {
		c.ADDQ(ldc3, nextC)
	}
	for range rows % 3 {
		c.ADDQ(ldc, nextC)
	}
	c.MOVQ(param("c"), bp)
	c.ADDQ(operand.U32(s.vecs*s.bytes), bp)
	c.CMPQ(strips, operand.U8(1))
	c.CMOVQEQ(bp, nextC)
	c.MOVQ(operand.U32(rows), below)
	for r := range acc {
		for v := range acc[r] {
			if s.zmm {
				c.VPXORD(acc[r][v], acc[r][v], acc[r][v])
			} else {
				c.VXORPS(acc[r][v], acc[r][v], acc[r][v])
			}
		}
	}
	c.MOVQ(b, bp)

	// step records the products of one k.
	step := func() {
		for v := range bv {
			c.VMOVUPS(at(bp, v*s.bytes), bv[v])
		}
		c.ADDQ(ldb, bp)
		for r := range acc {
			x := av[r%len(av)]
			c.VBROADCASTSS(at(a, r*4), x)
			for v := range bv {
				c.VFMADD231PS(bv[v], x, acc[r][v])
			}
		}
		c.ADDQ(lda, a)
	}
	const unroll = 4
	c.MOVQ(param("k"), count)
	c.SUBQ(operand.U8(unroll), count)
	c.JL(operand.LabelRef("rest"))
	c.Label("four")
	for i := range unroll {
		step()
		if v := i * 64; v < s.vecs*s.bytes {
			c.PREFETCHT0(at(nextC, v))
		}
	}
	c.ADDQ(ldc, nextC)
	c.SUBQ(operand.U8(unroll), count)
	c.JL(operand.LabelRef("rest"))
	c.DECQ(below)
	c.JNZ(operand.LabelRef("four"))
	c.Label("more")
	for i := range unroll {
		step()
		if i == 1 {
			fetchLine(avx512(c), next, left)
		}
	}
	c.SUBQ(operand.U8(unroll), count)
	c.JGE(operand.LabelRef("more"))
	c.Label("rest")
	c.ADDQ(operand.U8(unroll), count)
	c.JZ(operand.LabelRef("store"))
	c.Label("one")
	step()
	c.DECQ(count)
	c.JNZ(operand.LabelRef("one"))

	c.Label("store")
	// write stores the tile, adding what is there or not.
	write := func(add bool) {
		for r := range acc {
			m := at(cp, 0)
			if r%3 > 0 {
				m.Index, m.Scale = ldc, uint8(r%3)
			}
			for v := range acc[r] {
				m.Disp = v * s.bytes
				if add {
					c.VADDPS(m, acc[r][v], acc[r][v])
				}
				c.VMOVUPS(acc[r][v], m)
			}
			if r%3 == 2 {
				c.ADDQ(ldc3, cp)
			}
		}
		for range rows % 3 {
			c.ADDQ(ldc, cp)
		}
	}
	add := c.Load(c.Param("add"), c.GP8()) // there is no register to keep it in
	c.TESTB(add, add)
	c.JZ(operand.LabelRef("replace"))
	write(true)
	c.DECQ(strips)
	c.JNZ(operand.LabelRef("strip"))
	c.JMP(operand.LabelRef("done"))
	c.Label("replace")
	write(false)
	c.DECQ(strips)
	c.JNZ(operand.LabelRef("strip"))
	c.Label("done")
	c.VZEROUPPER()
	c.RET()
}
