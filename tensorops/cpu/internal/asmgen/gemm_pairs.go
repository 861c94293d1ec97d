package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const gemmPairsDoc = `
Packing of strips of words, each a pair of consecutive k in bfloat16, the first in its
lower half. float32 is rounded to the nearest, ties to even; numbers below 2^-126 become
zero, which is what the product would take them for. An odd depth ends with a zero.

pairsRows: two rows of the source are interleaved, 16 or 32 pairs at a time, while those 32 rows further on
are on their way to the second-level cache.
pairsCols: a row of the source holds its pairs side by side; 16 rows of 16 pairs are
transposed. What lies past the border is masked, so that it is neither read nor
written, and the depth ends with zeros.

Registers: Z0 to Z15 hold words, Z16 to Z31 what they are made of. They are named here,
since the assembler does not know the conversion. K1 masks what of the lower half of a
vector's numbers exist, K2 of the upper half.`

// gemmPairs writes the packing loops.
func gemmPairs(c *build.Context) {
	a := avx512(c)
	for _, half := range []bool{false, true} {
		for _, strip := range []int{12, 32} {
			pairsRows(a, strip, half)
		}
		for _, width := range []int{12, 16} {
			pairsCols(a, width, half)
		}
	}
}

// pairsFunction starts a packing function of a type of source.
func pairsFunction(a *isa, name string, half bool, doc ...string) {
	kind := "float32"
	if half {
		name, kind = name+"Half", "uint16"
	}
	a.Function(name)
	a.SignatureExpr("func(dst *float32, src *" + kind + ", stride, depth, width int)")
	a.Pragma("noescape")
	a.Doc(append([]string{name + " " + doc[0]}, doc[1:]...)...)
}

// low makes a mask of the lowest n bits, n ≤ 64, in a register.
func low(a *isa, n reg.GPVirtual) reg.GPVirtual {
	bits := a.GP64()
	a.MOVQ(operand.I32(-1), bits)
	a.BZHIQ(n, bits, bits)
	return bits
}

// halves puts a mask of 32 lanes into K1 and K2, 16 each, or into K1.
func halves(a *isa, bits reg.GPVirtual, half bool) {
	if half {
		a.KMOVD(bits.As32(), reg.K1)
		return
	}
	a.KMOVW(bits.As32(), reg.K1)
	a.SHRQ(operand.U8(16), bits)
	a.KMOVW(bits.As32(), reg.K2)
}

// pairsRows packs a strip whose elements are contiguous.
func pairsRows(a *isa, strip int, half bool) {
	pairsFunction(a, fmt.Sprintf("pairsRows%d", strip), half,
		fmt.Sprintf("stores, for each pair of k below depth, the words of width numbers at src + k·stride (in bytes), in strips of %d.", strip),
		"dst may be src, where both are contiguous.")
	dst, src, stride, depth, width := a.integer("dst"), a.integer("src"), a.integer("stride"), a.integer("depth"), a.integer("width")
	halves(a, low(a, width), half)
	const order, order2 = 31, 30
	wide := strip > 16
	if half && wide {
		lower, upper := make([]uint64, 8), make([]uint64, 8)
		for i := range lower {
			n := uint64(2 * i)
			lower[i] = n | (n+32)<<16 | (n+1)<<32 | (n+33)<<48
			upper[i] = lower[i] + 0x0010_0010_0010_0010
		}
		a.VMOVUPS(a.table("interleave_lower", lower), z(order))
		a.VMOVUPS(a.table("interleave_upper", upper), z(order2))
	} else {
		a.VMOVUPS(interleave(a), z(order))
	}
	// step packs two rows, or one and zeros.
	step := func(both bool) {
		switch {
		case half && wide: // Z16 and Z17 are 32 numbers of each row
			a.VMOVDQU16_Z(operand.Mem{Base: src}, reg.K1, z(0))
			if both {
				a.VMOVDQU16_Z(operand.Mem{Base: src, Index: stride, Scale: 1}, reg.K1, z(17))
			} else {
				a.VPXORD(z(17), z(17), z(17))
			}
			a.VMOVDQA64(z(0), z(1))
			a.VPERMT2W(z(17), z(order), z(0))
			a.VPERMT2W(z(17), z(order2), z(1))
		case half:
			a.VMOVDQU16_Z(operand.Mem{Base: src}, reg.K1, z(0).AsY())
			if both {
				a.VMOVDQU16_Z(operand.Mem{Base: src, Index: stride, Scale: 1}, reg.K1, z(17).AsY())
				a.VINSERTI64X4(operand.U8(1), z(17).AsY(), z(0), z(0))
			} // else the upper half is zero
			a.VPERMW(z(0), z(order), z(0))
		default:
			for i := range ceil(strip, 16) {
				even, odd := 16+2*i, 17+2*i
				mask := []reg.Register{reg.K1, reg.K2}[i]
				a.VMOVUPS_Z(operand.Mem{Base: src, Disp: 64 * i}, mask, z(even))
				if both {
					a.VMOVUPS_Z(operand.Mem{Base: src, Index: stride, Scale: 1, Disp: 64 * i}, mask, z(odd))
				} else {
					a.VPXORD(z(odd), z(odd), z(odd))
				}
				roundBF16(a, odd, even, i)
			}
			for i := range ceil(strip, 16) {
				a.VPERMW(z(i), z(order), z(i))
			}
		}
		for i := 0; 16*i < strip; i++ {
			storeWords(a, z(i), operand.Mem{Base: dst, Disp: 64 * i}, min(16, strip-16*i))
		}
	}
	ahead := rowsAhead(a.Context, src, stride)
	a.SUBQ(operand.U8(2), depth)
	a.JL(a.jump("odd"))
	a.Label("pair")
	a.PREFETCHT1(operand.Mem{Base: ahead})
	a.PREFETCHT1(operand.Mem{Base: ahead, Index: stride, Scale: 1})
	step(true)
	a.LEAQ(operand.Mem{Base: src, Index: stride, Scale: 2}, src)
	a.LEAQ(operand.Mem{Base: ahead, Index: stride, Scale: 2}, ahead)
	a.ADDQ(operand.U32(4*strip), dst)
	a.SUBQ(operand.U8(2), depth)
	a.JGE(a.jump("pair"))
	a.Label("odd")
	a.ADDQ(operand.U8(2), depth)
	a.JZ(a.jump("done"))
	step(false)
	a.Label("done")
	a.end()
}

func ceil(a, b int) int { return (a + b - 1) / b }

// storeWords stores the first 12 or 16 words.
func storeWords(a *isa, v reg.VecPhysical, m operand.Mem, words int) {
	if words == 16 {
		a.VMOVUPS(v, m)
		return
	}
	a.VMOVUPS(v.AsY(), m)
	a.VEXTRACTF32X4(operand.U8(2), v, m.Offset(32))
}

// pairsCols packs rows of the source, each contiguous along k: all of a strip of 12, or
// 16 of a strip of 32.
func pairsCols(a *isa, rows int, half bool) {
	strip, step := 48, 128 // in bytes
	if rows == 16 {
		strip = 128
	}
	if half {
		step = 64
	}
	pairsFunction(a, fmt.Sprintf("pairsCols%d", rows), half,
		fmt.Sprintf("stores, for each pair of k below depth, %d words at dst + k/2·%d: element j from", rows, strip),
		"src + j·stride (in bytes), where j ≥ width repeats the last row.")
	dst, src, stride, depth, width := a.integer("dst"), a.integer("src"), a.integer("stride"), a.integer("depth"), a.integer("width")
	row, next, n := a.GP64(), a.GP64(), a.GP64()
	a.Label("block")
	a.MOVQ(operand.U32(32), n)
	a.CMPQ(depth, n)
	a.CMOVQLT(depth, n)
	halves(a, low(a, n), half)
	a.MOVQ(src, row)
	for i := range rows {
		if half {
			a.VMOVDQU16_Z(operand.Mem{Base: row}, reg.K1, z(i))
		} else {
			lower, upper := 16+i%8, 24+i%8
			a.VMOVUPS_Z(operand.Mem{Base: row}, reg.K1, z(lower))
			a.VMOVUPS_Z(operand.Mem{Base: row, Disp: 64}, reg.K2, z(upper))
			roundBF16(a, upper, lower, i)
		}
		if i+1 < rows {
			a.LEAQ(operand.Mem{Base: row, Index: stride, Scale: 1}, next)
			a.CMPQ(width, operand.U8(i+1))
			a.CMOVQGT(next, row)
		}
	}
	transposeWords(a)
	a.CMPQ(depth, operand.U8(32))
	a.JL(a.jump("rest"))
	for i := range 16 {
		storeWords(a, z(i), operand.Mem{Base: dst, Disp: strip * i}, rows)
	}
	a.ADDQ(operand.U32(step), src)
	a.ADDQ(operand.U32(16*strip), dst)
	a.SUBQ(operand.U8(32), depth)
	a.JNZ(a.jump("block"))
	a.JMP(a.jump("done"))
	a.Label("rest")
	for i := range 16 {
		storeWords(a, z(i), operand.Mem{Base: dst, Disp: strip * i}, rows)
		if i < 15 {
			a.CMPQ(depth, operand.U8(2*(i+1)))
			a.JLE(a.jump("done"))
		}
	}
	a.Label("done")
	a.end()
}
