package gemm

import "unsafe"

// AMX multiplies bfloat16 by Intel's matrix extension.
var AMX TileKernel

// TileKernel multiplies bfloat16 by tiles, and packs by AVX-512. The zero value is ready.
//
// A strip of A has 32 rows, one of B 32 columns. For each 32 k, a strip of A holds
// two tiles of 16 rows × 32 k, one of B two tiles of 16 pairs of k × 16 columns, as
// TDPBF16PS wants them. The depth is padded with zeros.
type TileKernel struct{}

const (
	amxStrip = 32 // rows of A, columns of B
	amxStep  = 32 // k in a tile
)

func (TileKernel) Strips() (mr, nr int) { return amxStrip, amxStrip }

// amxLen is the size of a packed operand: two bytes a number, in floats.
func amxLen(width, k int) int {
	return ceil(width, amxStrip) * amxStrip * ceil(k, amxStep) * amxStep / 2
}

func (TileKernel) LenA(m, k int) int { return amxLen(m, k) }
func (TileKernel) LenB(k, n int) int { return amxLen(n, k) }

// amxDepth bounds the depth of a block. A strip of B of it takes 32 KiB of the first-level cache, and is read
// there for each strip of A, which goes past that cache.
const amxDepth = 512

// Depth cuts a product evenly. A tile of C goes on with the sums that it was read
// with, so the cuts are not seen in the bits.
func (TileKernel) Depth(k int) int {
	blocks := max(1, ceil(k, amxDepth))
	return max(1, ceil(ceil(k, blocks), amxStep)) * amxStep
}

func (TileKernel) PackA(dst []float32, a Matrix, m, k int) { packAMX(dst, a, m, k, false) }
func (TileKernel) PackB(dst []float32, b Matrix, k, n int) { packAMX(dst, b.T(), n, k, true) }

func packAMX(dst []float32, m Matrix, width, k int, forB bool) {
	if m.Half != nil {
		packSquares(dst, m.Half, m.Row, m.Col, width, k, forB)
	} else {
		packSquares(dst, m.Data, m.Row, m.Col, width, k, forB)
	}
}

// StripA packs one strip of A, of at most 32 rows: row i is at src + i·stride, contiguous along k.
func (TileKernel) StripA(dst, src []float32, stride, depth, rows int) {
	packSquares(dst, src, stride, 1, rows, depth, false)
}

// StripB packs one whole strip of B from rows of 32 numbers one after the other, one for each k:
// what Part stores in a C of 32 columns. dst may be src. It takes 512 floats at the least.
func (TileKernel) StripB(dst, src []float32, depth int) {
	pack := func(dst, src []float32, depth int) { packSquares(dst, src, 1, amxStrip, amxStrip, depth, true) }
	if depth < amxStep { // which is gathered before it is written
		pack(dst, src, depth)
		return
	}
	// The first square is written over the half of what it is made of, all others over what has been read.
	var first [amxSquare]float32
	pack(first[:], src, amxStep)
	if depth > amxStep {
		pack(dst[amxSquare:], src[amxStep*amxStrip:], depth-amxStep)
	}
	copy(dst, first[:])
}

// PackedA and PackedB are operands packed to some depth. Operand.From then takes multiples of 32 k.
func (TileKernel) PackedA(data []float32, depth int) Operand {
	return Operand{Data: data, K: amxSquare / amxStep, Strip: ceil(depth, amxStep) * amxSquare}
}
func (kn TileKernel) PackedB(data []float32, depth int) Operand { return kn.PackedA(data, depth) }

// Block computes C = A·B, or C += A·B where add is set, from packed operands of depth k. C's rows are contiguous.
func (kn TileKernel) Block(c Matrix, m, n, k int, a, b []float32, add bool) {
	kn.Part(c, m, n, k, kn.PackedA(a, k), kn.PackedB(b, k), add)
}

// Part is Block over the first k of operands that may be deeper. A step of 32 k counts whole: where k ends
// within it and both operands are deeper, one of them must hold zeros behind k, and the other no
// infinity or NaN.
func (TileKernel) Part(c Matrix, m, n, k int, a, b Operand, add bool) {
	steps := ceil(k, amxStep)
	rows, cols := m/amxStrip, n/amxStrip
	switch {
	case rows == 0 || cols == 0:
	case a.Strip == steps*amxSquare && b.Strip == a.Strip: // one after the other, as the tiles go
		tilesAMX(rows, cols, steps, &a.Data[0], &b.Data[0], &c.Data[0], 4*c.Row, add)
	default:
		for j := range cols {
			for i := range rows {
				tilesAMX(1, 1, steps, &a.Data[i*a.Strip], &b.Data[j*b.Strip], &c.Data[i*amxStrip*c.Row+j*amxStrip], 4*c.Row, add)
			}
		}
	}
	for i := 0; i < m; i += amxStrip {
		for j := 0; j < n; j += amxStrip {
			if i+amxStrip > m || j+amxStrip > n {
				amxBorder(c.At(i, j), min(amxStrip, m-i), min(amxStrip, n-j), steps, &a.Data[i/amxStrip*a.Strip], &b.Data[j/amxStrip*b.Strip], add)
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
