package gemm

import "unsafe"

// AMX multiplies bfloat16 by Intel's matrix extension.
var AMX TileKernel

// TileKernel multiplies bfloat16 by tiles, and packs by AVX-512. The zero value is ready.
//
// A strip of A has 32 rows, one of B 32 columns. For each 32 k, a strip of A holds
// two tiles of 16 rows × 32 k, one of B two tiles of 16 pairs of k × 16 columns, as
// TDPBF16PS wants them. The depth is padded with zeros. Such tiles of A lie in rows of bfloat16 as well, which BlockRows
// multiplies without packing.
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

// Depth cuts a product evenly. A tile of C continues with the sums that it loaded, so the cuts do not
// change any bit.
func (TileKernel) Depth(k int) int {
	blocks := max(1, ceil(k, amxDepth))
	return max(1, ceil(ceil(k, blocks), amxStep)) * amxStep
}

func (TileKernel) PackA(dst []float32, a Matrix, m, k int) { packAMX(dst, a, m, k, false) }
func (TileKernel) PackB(dst []float32, b Matrix, k, n int) { packAMX(dst, b.T(), n, k, true) }

func packAMX(dst []float32, m Matrix, width, k int, forB bool) {
	switch {
	case m.Coded != nil:
		length := ceil(k, amxStep) * amxSquare // of a strip
		piecewise.pieces(m.T(), k, width, amxStrip, func(p piece) {
			row, col := 1, p.stride
			if p.deep {
				row, col = p.stride, 1
			}
			packSquares(dst[p.j/amxStrip*length+p.k/amxStep*amxSquare:], p.wide, row, col, p.width, p.depth, forB)
		})
	case m.Half != nil:
		packSquares(dst, m.Half, m.Row, m.Col, width, k, forB)
	default:
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
func (kn TileKernel) Part(c Matrix, m, n, k int, a, b Operand, add bool) {
	if m > 0 {
		const row = 4 * amxSquare / amxStrip
		multiplyTiles(c, m, n, ceil(k, amxStep), tiledA{unsafe.Pointer(&a.Data[0]), row, row * amxStrip / 2, row * amxStrip, 4 * a.Strip}, b, add)
	}
}

// ReadsRows reports whether BlockRows takes m rows of an A of depth k.
func (TileKernel) ReadsRows(a Matrix, m, k int) bool {
	return a.Half != nil && a.Col == 1 && m%amxStrip == 0 && k%amxStep == 0
}

// BlockRows is Block with an A that is not packed, which a tile's load can read as well: see ReadsRows.
func (kn TileKernel) BlockRows(c Matrix, m, n, k int, a Matrix, b []float32, add bool) {
	if m > 0 {
		row := a.Row * int(unsafe.Sizeof(a.Half[0]))
		multiplyTiles(c, m, n, k/amxStep, tiledA{unsafe.Pointer(&a.Half[0]), row, row * amxStrip / 2, amxStep * int(unsafe.Sizeof(a.Half[0])),
			row * amxStrip}, kn.PackedB(b, k), add)
	}
}

// tiledA is where tiles find an A. Distances are in bytes: between the rows of a tile, the two tiles of a strip,
// steps of 32 k, and strips.
type tiledA struct {
	data                   unsafe.Pointer
	row, tile, step, strip int
}

// multiplyTiles computes C = A·B, or C += A·B where add is set, for so many steps of the depth.
func multiplyTiles(c Matrix, m, n, steps int, a tiledA, b Operand, add bool) {
	p := tileProduct{steps, a, b, add}
	if rows, cols := m/amxStrip, n/amxStrip; rows > 0 && cols > 0 {
		p.strips(0, 0, rows, cols, &c.Data[0], c.Row)
	}
	for i := 0; i < m; i += amxStrip {
		for j := 0; j < n; j += amxStrip {
			if i+amxStrip > m || j+amxStrip > n {
				p.border(i/amxStrip, j/amxStrip, c.At(i, j), min(amxStrip, m-i), min(amxStrip, n-j))
			}
		}
	}
}

type tileProduct struct {
	steps int
	a     tiledA
	b     Operand
	add   bool
}

// strips computes the squares of rows strips of A from i on and of cols strips of B from j on.
func (p *tileProduct) strips(i, j, rows, cols int, c *float32, ldc int) {
	tilesAMX(rows, cols, p.steps, unsafe.Add(p.a.data, i*p.a.strip), unsafe.Pointer(&p.b.Data[j*p.b.Strip]), unsafe.Pointer(c), 4*ldc,
		p.a.row, p.a.tile, p.a.step, p.a.strip-p.steps*p.a.step, 4*(p.b.Strip-p.steps*amxSquare), p.add)
}

// border computes a square beside C, of which m × n numbers belong to C.
func (p *tileProduct) border(i, j int, c Matrix, m, n int) {
	var square [amxStrip * amxStrip]float32
	if p.add {
		for r := range m {
			copy(square[r*amxStrip:][:n], c.Data[r*c.Row:])
		}
	}
	p.strips(i, j, 1, 1, &square[0], amxStrip)
	for r := range m {
		copy(c.Data[r*c.Row:][:n], square[r*amxStrip:])
	}
}

// tilesAMX multiplies rows strips of A by cols strips of B, each steps·32 deep: C = A·B, or C += A·B. Distances are in
// bytes: ldc that of C's rows, aRow that of a tile of A, aTile that of the two tiles of a strip, aStep that of
// steps; from the end of a strip aNext and bNext lead to the next.
//
//go:noescape
func tilesAMX(rows, cols, steps int, a, b, c unsafe.Pointer, ldc, aRow, aTile, aStep, aNext, bNext int, add bool)
