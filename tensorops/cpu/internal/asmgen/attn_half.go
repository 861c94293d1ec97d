package main

import (
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const attnHalfDoc = `
Loops over rows in bfloat16.

dots: one sum of 16 lanes for each row, of pairs of products; the lanes are combined by
halves.
roundCols: two rows of the source, two numbers of each of 16 columns, are rounded and
interleaved; 16 of these are transposed into 32 numbers of each row of the result.

Registers are named, since the assembler does not know the conversion and the product.
K1 masks what of the last 32 numbers exists.`

// attnHalf writes the loops.
func attnHalf(c *build.Context) {
	a := avx512(c)
	attnDots(a)
	attnRoundCols(a)
}

// dotBF16 adds products of pairs: dst += left·right.
func dotBF16(a *isa, right, left, dst int) { evex(a, prefixF3, 0x52, right, left, dst) }

func attnDots(a *isa) {
	a.Function("dotsBF16")
	a.SignatureExpr("func(dst []float32, a, b *uint16, strideA, strideB, depth int)")
	a.Pragma("noescape")
	a.Doc("dotsBF16 stores a·b of as many rows as dst has, each of depth numbers. Strides are in bytes.")
	dst, rows := a.base("dst"), a.length("dst")
	p := []reg.GPVirtual{a.integer("a"), a.integer("b")}
	stride := []reg.GPVirtual{a.integer("strideA"), a.integer("strideB")}
	depth, last, n, at := a.integer("depth"), a.GP64(), a.GP64(), a.GP64()
	a.MOVQ(depth, last)
	a.ANDQ(operand.U8(31), last)
	a.KMOVD(low(a, last).As32(), reg.K1)
	a.Label("row")
	a.VPXORD(z(0), z(0), z(0))
	a.XORQ(at, at)
	a.MOVQ(depth, n)
	a.SUBQ(operand.U8(32), n)
	a.JL(a.jump("last"))
	a.Label("loop")
	for i := range 2 {
		a.VMOVUPS(operand.Mem{Base: p[i], Index: at, Scale: 1}, z(1+i))
	}
	dotBF16(a, 1, 2, 0)
	a.ADDQ(operand.U8(64), at)
	a.SUBQ(operand.U8(32), n)
	a.JGE(a.jump("loop"))
	a.Label("last")
	a.TESTQ(last, last)
	a.JZ(a.jump("sum"))
	for i := range 2 {
		a.VMOVDQU16_Z(operand.Mem{Base: p[i], Index: at, Scale: 1}, reg.K1, z(1+i))
	}
	dotBF16(a, 1, 2, 0)
	a.Label("sum")
	a.VEXTRACTF64X4(operand.U8(1), z(0), z(1).AsY())
	a.VADDPS(z(1).AsY(), z(0).AsY(), z(0).AsY())
	a.VEXTRACTF128(operand.U8(1), z(0).AsY(), z(1).AsX())
	a.VADDPS(z(1).AsX(), z(0).AsX(), z(0).AsX())
	a.VMOVHLPS(z(0).AsX(), z(0).AsX(), z(1).AsX())
	a.VADDPS(z(1).AsX(), z(0).AsX(), z(0).AsX())
	a.VMOVSHDUP(z(0).AsX(), z(1).AsX())
	a.VADDSS(z(1).AsX(), z(0).AsX(), z(0).AsX())
	a.VMOVSS(z(0).AsX(), operand.Mem{Base: dst})
	a.ADDQ(operand.U8(4), dst)
	for i := range 2 {
		a.ADDQ(stride[i], p[i])
	}
	a.DECQ(rows)
	a.JNZ(a.jump("row"))
	a.end()
}

func attnRoundCols(a *isa) {
	a.Function("roundCols16")
	a.SignatureExpr("func(dst *uint16, src *float32, stride, depth, cols int)")
	a.Pragma("noescape")
	a.Doc("roundCols16 rounds cols ≤ 16 columns of a source of depth rows, of 32 numbers each, of which it reads",
		"16, into rows of depth numbers: column j goes to dst + j·stride (in bytes).")
	dst, src, stride, depth, cols := a.integer("dst"), a.integer("src"), a.integer("stride"), a.integer("depth"), a.integer("cols")
	row, next, n := a.GP64(), a.GP64(), a.GP64()
	const rowBytes, order = 128, 31
	a.Label("block")
	a.VMOVUPS(interleave(a), z(order))
	a.MOVQ(operand.U32(32), n)
	a.CMPQ(depth, n)
	a.CMOVQLT(depth, n)
	a.KMOVD(low(a, n).As32(), reg.K1)
	a.MOVQ(src, row)
	for i := range 16 {
		lower, upper := 16+i%4, 20+i%4
		for half, v := range []int{lower, upper} {
			a.VMOVUPS(operand.Mem{Base: row}, z(v))
			if k := 2*i + half; k < 31 { // rows that don't exist are the last one again
				a.LEAQ(operand.Mem{Base: row, Disp: rowBytes}, next)
				a.CMPQ(depth, operand.U8(k+1))
				a.CMOVQGT(next, row)
			}
		}
		roundBF16(a, upper, lower, i)
		a.VPERMW(z(i), z(order), z(i))
	}
	transposeWords(a)
	a.MOVQ(dst, row)
	for i := range 16 {
		a.VMOVDQU16(z(i), reg.K1, operand.Mem{Base: row})
		if i < 15 {
			a.CMPQ(cols, operand.U8(i+1))
			a.JLE(a.jump("stored"))
			a.ADDQ(stride, row)
		}
	}
	a.Label("stored")
	a.ADDQ(operand.U8(64), dst)
	a.ADDQ(operand.U32(32*rowBytes), src)
	a.SUBQ(operand.U8(32), depth)
	a.JG(a.jump("block"))
	a.end()
}
