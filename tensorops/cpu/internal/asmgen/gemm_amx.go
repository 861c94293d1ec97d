package main

import (
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const gemmAMXDoc = `
Packing for AMX: float32 becomes bfloat16 (to the nearest, ties to even; numbers
below 2^-126 become zero, which is what the product would take them for); bfloat16
stays what it is.

A tile is 16 rows of 16 words, each a pair of consecutive k. Where pairs lie side by
side in memory, a row of the tile is 32 numbers of the source; where they lie in two
rows, 16 pairs are interleaved. Either is what the tile wants or its transpose, in
words: so there are four functions for each type. Transposing takes four rounds over 16 vectors:
unpack words, unpack pairs, exchange quarters twice.

Registers: Z0 to Z15 hold the tile, Z16 to Z31 what each round makes of it. They are
named here, since the assembler does not know the conversion.`

// gemmAMXPack writes the functions.
func gemmAMXPack(c *build.Context) {
	a := avx512(c)
	rows, cols := "row j is contiguous along k: the pairs of k lie side by side at src + j·stride",
		"k is contiguous along j: its numbers lie side by side at src + k·stride"
	for _, source := range []struct {
		name, kind, doc string
		load            func(a *isa, row reg.GPVirtual, stride reg.GPVirtual)
		step            int // in bytes, from a tile to the other of its strip; 0: load gets there
	}{
		{"Rows", "float32", rows, loadRows, 0},
		{"Cols", "float32", cols, loadPairs, 64},
		{"RowsHalf", "uint16", rows, loadHalfRows, 0},
		{"ColsHalf", "uint16", cols, loadHalfPairs, 32},
	} {
		for _, transposed := range []bool{false, true} {
			name, as := "packAMX"+source.name, "as it lies"
			if transposed {
				name, as = name+"T", "transposed"
			}
			a.Function(name)
			a.SignatureExpr("func(dst *float32, src *" + source.kind + ", stride, steps, dstStep, srcStep int)")
			a.Pragma("noescape")
			a.Doc(name+" packs squares of 32 j × 32 k into two tiles each, "+as+":", source.doc+".",
				"From square to square dst and src move by their steps. All distances are in bytes.")
			dst, src, stride, steps := a.integer("dst"), a.integer("src"), a.integer("stride"), a.integer("steps")
			dstStep, srcStep := a.integer("dstStep"), a.integer("srcStep")
			row := a.GP64()
			a.Label("square")
			a.MOVQ(src, row)
			for tile := range 2 {
				if source.step > 0 {
					a.LEAQ(operand.Mem{Base: src, Disp: tile * source.step}, row)
				}
				source.load(a, row, stride)
				if transposed {
					transposeWords(a)
				}
				for i := range 16 {
					a.VMOVUPS(z(i), operand.Mem{Base: dst, Disp: 1024*tile + 64*i})
				}
			}
			a.ADDQ(srcStep, src)
			a.ADDQ(dstStep, dst)
			a.DECQ(steps)
			a.JNZ(a.jump("square"))
			a.end()
		}
	}
}

// z is vector register i.
func z(i int) reg.VecPhysical {
	return []reg.VecPhysical{
		reg.Z0, reg.Z1, reg.Z2, reg.Z3, reg.Z4, reg.Z5, reg.Z6, reg.Z7,
		reg.Z8, reg.Z9, reg.Z10, reg.Z11, reg.Z12, reg.Z13, reg.Z14, reg.Z15,
		reg.Z16, reg.Z17, reg.Z18, reg.Z19, reg.Z20, reg.Z21, reg.Z22, reg.Z23,
		reg.Z24, reg.Z25, reg.Z26, reg.Z27, reg.Z28, reg.Z29, reg.Z30, reg.Z31,
	}[i]
}

// loadRows reads 16 rows of 32 numbers, and leaves row at the next.
func loadRows(a *isa, row, stride reg.GPVirtual) {
	for i := range 16 {
		lower, upper := 16+i%8, 24+i%8
		a.VMOVUPS(operand.Mem{Base: row}, z(lower))
		a.VMOVUPS(operand.Mem{Base: row, Disp: 64}, z(upper))
		roundBF16(a, upper, lower, i)
		a.ADDQ(stride, row)
	}
}

// loadHalfRows reads 16 rows of 32 numbers of bfloat16, and leaves row at the next.
func loadHalfRows(a *isa, row, stride reg.GPVirtual) {
	for i := range 16 {
		a.VMOVUPS(operand.Mem{Base: row}, z(i))
		a.ADDQ(stride, row)
	}
}

// interleave is the order that makes words of the 32 numbers of a vector: the first of
// the lower half, the first of the upper, the second …
func interleave(a *isa) operand.Mem {
	words := make([]uint64, 8)
	for i := range words {
		n := uint64(2 * i)
		words[i] = n | (n+16)<<16 | (n+1)<<32 | (n+17)<<48
	}
	return a.table("interleave", words)
}

// loadPairs reads 16 pairs of rows of 16 numbers.
func loadPairs(a *isa, row, stride reg.GPVirtual) {
	const order = 31
	a.VMOVUPS(interleave(a), z(order))
	for i := range 16 {
		even, odd := 16+i%4, 20+i%4
		a.VMOVUPS(operand.Mem{Base: row}, z(even))
		a.VMOVUPS(operand.Mem{Base: row, Index: stride, Scale: 1}, z(odd))
		roundBF16(a, odd, even, i)
		a.VPERMW(z(i), z(order), z(i))
		a.LEAQ(operand.Mem{Base: row, Index: stride, Scale: 2}, row)
	}
}

// loadHalfPairs reads 16 pairs of rows of 16 numbers of bfloat16.
func loadHalfPairs(a *isa, row, stride reg.GPVirtual) {
	const order = 31
	a.VMOVUPS(interleave(a), z(order))
	for i := range 16 {
		a.VMOVDQU(operand.Mem{Base: row}, z(i).AsY())
		a.VINSERTI64X4(operand.U8(1), operand.Mem{Base: row, Index: stride, Scale: 1}, z(i), z(i))
		a.VPERMW(z(i), z(order), z(i))
		a.LEAQ(operand.Mem{Base: row, Index: stride, Scale: 2}, row)
	}
}

// roundBF16 is VCVTNE2PS2BF16: dst's lower half is the 16 numbers of lower, rounded,
// its upper half those of upper (Intel 64 manual, volume 2).
func roundBF16(a *isa, upper, lower, dst int) { evex(a, prefixF2, 0x72, lower, upper, dst) }

// The mandatory prefixes, as EVEX codes them.
const (
	prefixF3 = 2
	prefixF2 = 3
)

// evex writes an instruction that the assembler does not know, of vectors of 512 bits
// in map 0F38 without a mask: op z(rm), z(left), z(dst) in the assembler's order. The
// registers past Z15 have numbers of five bits, whose upper ones the prefix holds
// inverted (Intel 64 manual, volume 2, 2.7).
func evex(a *isa, prefix, opcode, rm, left, dst int) {
	bit := func(i, n int) int { return i >> n & 1 }
	for _, b := range []int{
		0x62,
		(1-bit(dst, 3))<<7 | (1-bit(rm, 4))<<6 | (1-bit(rm, 3))<<5 | (1-bit(dst, 4))<<4 | 2,
		(15-left&15)<<3 | 1<<2 | prefix,
		2<<5 | (1-bit(left, 4))<<3,
		opcode,
		3<<6 | dst&7<<3 | rm&7,
	} {
		a.Instruction(&ir.Instruction{Opcode: "BYTE", Operands: []operand.Op{operand.U8(b)}})
	}
}

// transposeWords transposes the 16 × 16 words of Z0 to Z15.
func transposeWords(a *isa) {
	for i := 0; i < 16; i += 2 { // words of two rows
		a.VPUNPCKLDQ(z(i+1), z(i), z(16+i))
		a.VPUNPCKHDQ(z(i+1), z(i), z(17+i))
	}
	for i := 0; i < 16; i += 4 { // of four: z(i+c) holds column 4q+c of them in its quarter q
		for half := range 2 {
			a.VPUNPCKLQDQ(z(18+i+half), z(16+i+half), z(i+2*half))
			a.VPUNPCKHQDQ(z(18+i+half), z(16+i+half), z(i+2*half+1))
		}
	}
	for i := 0; i < 16; i += 8 { // of eight
		for c := range 4 {
			a.VSHUFI32X4(operand.U8(0x88), z(i+4+c), z(i+c), z(16+i+c))   // quarters 0, 2
			a.VSHUFI32X4(operand.U8(0xdd), z(i+4+c), z(i+c), z(16+i+4+c)) // quarters 1, 3
		}
	}
	for c := range 8 { // of sixteen
		a.VSHUFI32X4(operand.U8(0x88), z(24+c), z(16+c), z(c))
		a.VSHUFI32X4(operand.U8(0xdd), z(24+c), z(16+c), z(8+c))
	}
}
