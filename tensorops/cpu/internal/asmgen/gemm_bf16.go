package main

import (
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const gemmBF16Doc = `
Packing for AMX, by AVX-512: float32 becomes bfloat16, its upper half, rounded to
the nearest and ties to even; a NaN stays one.

Registers: the constants of rounding; vectors of 16 numbers.`

// rounding holds the constants of rounding to bfloat16.
type rounding struct{ one, half, quiet reg.VecVirtual }

func (a *isa) rounding() rounding {
	return rounding{one: a.copy(a.bits(1)), half: a.copy(a.bits(0x7fff)), quiet: a.copy(a.bits(0x400000))}
}

// of rounds x: its upper halves are then the result.
func (r *rounding) of(a *isa, x reg.VecVirtual) {
	t, k := a.vec(), a.K()
	a.VCMPPS(operand.U8(3), x, x, k) // NaN
	a.VPSRLD(operand.U8(16), x, t)
	a.VPANDD(r.one, t, t)
	a.VPADDD(r.half, t, t)
	// A NaN is not rounded, which could make it a zero; its upper half must have a bit.
	n := a.vec()
	a.VPORD(r.quiet, x, n)
	a.VPADDD(t, x, x)
	a.VMOVDQA32(n, k, x)
}

// gemmBF16 writes both functions.
func gemmBF16(c *build.Context) {
	a := avx512(c)
	packRowsBF16(a)
	packPairsBF16(a)
}

func packRowsBF16(a *isa) {
	a.Function("packRowsBF16")
	a.SignatureExpr("func(dst, src *float32, stride, steps int)")
	a.Pragma("noescape")
	a.Doc("packRowsBF16 packs a strip of A, 32 rows of 32·steps numbers: row r is at src + r·stride bytes.")
	dst, src, stride, steps := a.integer("dst"), a.integer("src"), a.integer("stride"), a.integer("steps")
	r := a.rounding()
	row, left := a.GP64(), a.GP64()
	a.Label("step")
	a.MOVQ(src, row)
	a.MOVQ(operand.U32(32), left)
	a.Label("row")
	for i := range 2 {
		x := a.copy(operand.Mem{Base: row, Disp: 64 * i})
		r.of(a, x)
		a.VPSRLD(operand.U8(16), x, x)
		a.VPMOVDW(x, operand.Mem{Base: dst, Disp: 32 * i})
	}
	a.ADDQ(stride, row)
	a.ADDQ(operand.U8(64), dst)
	a.DECQ(left)
	a.JNZ(a.jump("row"))
	a.ADDQ(operand.U32(128), src)
	a.DECQ(steps)
	a.JNZ(a.jump("step"))
	a.end()
}

func packPairsBF16(a *isa) {
	a.Function("packPairsBF16")
	a.SignatureExpr("func(dst, src *float32, steps int)")
	a.Pragma("noescape")
	a.Doc("packPairsBF16 packs a strip of B, 32·steps rows of 32 numbers at src: pairs of rows, column by column.")
	dst, src, steps := a.integer("dst"), a.integer("src"), a.integer("steps")
	r := a.rounding()
	upper := a.copy(a.bits(0xffff0000))
	left := a.GP64()
	a.Label("step")
	a.MOVQ(operand.U32(16), left)
	a.Label("pair")
	for i := range 2 {
		even, odd := a.copy(operand.Mem{Base: src, Disp: 64 * i}), a.copy(operand.Mem{Base: src, Disp: 128 + 64*i})
		r.of(a, even)
		r.of(a, odd)
		a.VPSRLD(operand.U8(16), even, even)
		a.VPANDD(upper, odd, odd)
		a.VPORD(odd, even, even)
		a.VMOVUPS(even, operand.Mem{Base: dst, Disp: 1024 * i})
	}
	a.ADDQ(operand.U32(256), src)
	a.ADDQ(operand.U8(64), dst)
	a.DECQ(left)
	a.JNZ(a.jump("pair"))
	a.ADDQ(operand.U32(1024), dst)
	a.DECQ(steps)
	a.JNZ(a.jump("step"))
	a.end()
}
