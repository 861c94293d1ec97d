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
	blocks := max(1, ceil(k, amxDepth))
	return max(1, ceil(ceil(k, blocks), amxStep)) * amxStep
}

func (amx) PackA(dst []float32, a Matrix, m, k int) { packAMX(dst, a, m, k, false) }
func (amx) PackB(dst []float32, b Matrix, k, n int) { packAMX(dst, b.T(), n, k, true) }

func packAMX(dst []float32, m Matrix, width, k int, forB bool) {
	if m.Half != nil {
		packSquares(dst, m.Half, m.Row, m.Col, width, k, forB)
	} else {
		packSquares(dst, m.Data, m.Row, m.Col, width, k, forB)
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
