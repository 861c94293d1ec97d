package gemm

import "unsafe"

// AMX multiplies bfloat16 by Intel's matrix extension, and packs by AVX-512.
//
// A strip of A has 32 rows, one of B 32 columns. For each 32 k, a strip of A holds
// two tiles of 16 rows × 32 k, one of B two tiles of 16 pairs of k × 16 columns, as
// TDPBF16PS wants them. The depth is padded with zeros.
var AMX Multiplier = amx{}

type amx struct{}

const (
	amxStrip = 32 // rows of A, columns of B
	amxStep  = 32 // k in a tile
)

func (amx) Strips() (mr, nr int) { return amxStrip, amxStrip }

// amxLen is the size of a packed operand: two bytes a number, in floats.
func amxLen(width, k int) int {
	return ceil(width, amxStrip) * amxStrip * ceil(k, amxStep) * amxStep / 2
}

func (amx) LenA(m, k int) int { return amxLen(m, k) }
func (amx) LenB(k, n int) int { return amxLen(n, k) }

// amxDepth bounds the depth of a block. The deeper, the rarer C is read and written,
// whose way to memory is what this path waits for.
const amxDepth = 1024

// Depth cuts a product evenly. A tile of C goes on with the sums that it was read
// with, so the cuts are not seen in the bits.
func (amx) Depth(k int) int {
	return ceil(ceil(k, ceil(k, amxDepth)), amxStep) * amxStep
}

func (amx) PackA(dst []float32, a Matrix, m, k int) { packAMX(dst, a, m, k, false) }
func (amx) PackB(dst []float32, b Matrix, k, n int) { packAMX(dst, b.T(), n, k, true) }

// amxSquare is what a strip has for each step of the depth, in floats.
const amxSquare = amxStrip * amxStep / 2

// packAMX packs width rows of m, each k deep: in strips of an A, or of a B.
func packAMX(dst []float32, m Matrix, width, k int, forB bool) {
	whole, strips := k/amxStep, width/amxStrip
	length := ceil(k, amxStep) * amxSquare
	switch {
	case m.Col == 1 && whole > 0:
		for j := range strips {
			packRows(forB, &dst[j*length], &m.At(j*amxStrip, 0).Data[0], 4*m.Row, whole, 4*amxSquare, 4*amxStep)
		}
	case m.Row == 1 && strips > 0:
		for s := range whole {
			packCols(forB, &dst[s*amxSquare], &m.At(0, s*amxStep).Data[0], 4*m.Col, strips, 4*length, 4*amxStrip)
		}
	default:
		whole, strips = 0, 0
	}
	for j := 0; j < ceil(width, amxStrip); j++ {
		s := 0
		if j < strips {
			s = whole
		}
		for ; s*amxStep < k; s++ {
			packBorder(forB, &dst[j*length+s*amxSquare], m.At(j*amxStrip, s*amxStep), min(amxStrip, width-j*amxStrip), min(amxStep, k-s*amxStep))
		}
	}
}

// packBorder packs a square of which only some rows and some of the depth exist.
func packBorder(forB bool, dst *float32, m Matrix, width, k int) {
	var square [amxStrip * amxStep]float32
	if m.Row == 1 {
		for c := range k {
			copy(square[c*amxStrip:][:width], m.Data[c*m.Col:])
		}
		packCols(forB, dst, &square[0], 4*amxStrip, 1, 0, 0)
		return
	}
	for r := range width {
		row := square[r*amxStep:][:k]
		if m.Col == 1 {
			copy(row, m.Data[r*m.Row:])
			continue
		}
		for c := range row {
			row[c] = m.Data[r*m.Row+c*m.Col]
		}
	}
	packRows(forB, dst, &square[0], 4*amxStep, 1, 0, 0)
}

// packRows and packCols choose the function by name, so that the compiler sees that
// it keeps none of its pointers.
func packRows(forB bool, dst, src *float32, stride, steps, dstStep, srcStep int) {
	if forB {
		packAMXRowsT(dst, src, stride, steps, dstStep, srcStep)
	} else {
		packAMXRows(dst, src, stride, steps, dstStep, srcStep)
	}
}

func packCols(forB bool, dst, src *float32, stride, steps, dstStep, srcStep int) {
	if forB {
		packAMXCols(dst, src, stride, steps, dstStep, srcStep)
	} else {
		packAMXColsT(dst, src, stride, steps, dstStep, srcStep)
	}
}

func (amx) Block(c Matrix, m, n, k int, a, b []float32, add bool) {
	steps := ceil(k, amxStep)
	rows, cols := m/amxStrip, n/amxStrip
	if rows > 0 && cols > 0 {
		tilesAMX(rows, cols, steps, &a[0], &b[0], &c.Data[0], 4*c.Row, add)
	}
	for i := 0; i < m; i += amxStrip {
		for j := 0; j < n; j += amxStrip {
			if i+amxStrip > m || j+amxStrip > n {
				amxBorder(c.At(i, j), min(amxStrip, m-i), min(amxStrip, n-j), steps, &a[amxLen(i, k)], &b[amxLen(j, k)], add)
			}
		}
	}
}

// amxBorder computes a tile beside C, of which m × n numbers belong to C.
func amxBorder(c Matrix, m, n, steps int, a, b *float32, add bool) {
	var tile [amxStrip * amxStrip]float32
	if add {
		for r := range m {
			copy(tile[r*amxStrip:][:n], c.Data[r*c.Row:])
		}
	}
	tilesAMX(1, 1, steps, a, b, &tile[0], int(unsafe.Sizeof(tile))/amxStrip, add)
	for r := range m {
		copy(c.Data[r*c.Row:][:n], tile[r*amxStrip:])
	}
}

// tilesAMX multiplies rows strips of A by cols strips of B, each steps·32 deep:
// C = A·B, or C += A·B. ldc is the distance of C's rows in bytes.
//
//go:noescape
func tilesAMX(rows, cols, steps int, a, b, c *float32, ldc int, add bool)
