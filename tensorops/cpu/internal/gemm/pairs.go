package gemm

import "math"

// PairKernel multiplies bfloat16: operands are rounded (to the nearest, ties to even;
// numbers below 2^-126 become zero) as they are packed, and the sums are float32.
//
// A packed operand is laid out like a Kernel's, in words of 32 bits that hold a pair of
// consecutive k each, the even one in the lower half: a strip holds for each pair in
// turn its MR or NR words. An odd depth ends with a zero in the upper half. Words are
// kept as the bits of float32. An element of C is a sum over pairs in ascending order;
// of a pair the product of the odd k is added first.
//
// Depths, and k, are numbers of k everywhere, except in an Operand, which counts words.
type PairKernel struct {
	Name   string
	MR, NR int

	tile         []pairTileFunc // tile[r] counts the first r rows of a strip of A
	depth        int            // bounds a block's depth; even
	packA, packB pairPacks
}

// pairPacks pack a strip of words from elements of a strip that are contiguous in
// memory (rows), or from contiguous k (cols), with the arguments of a stripFunc; the
// depth is padded with a zero.
type pairPacks struct {
	rows, cols         func(dst, src []float32, stride, depth, width int)
	rowsHalf, colsHalf func(dst []float32, src []uint16, stride, depth, width int)
}

// pairs is the number of pairs in a depth.
func pairs(k int) int { return (k + 1) / 2 }

// Strips are MR and NR.
func (p *PairKernel) Strips() (mr, nr int) { return p.MR, p.NR }

// Depth cuts a product evenly, in whole pairs.
func (p *PairKernel) Depth(k int) int {
	return 2 * pairs(ceil(k, max(1, ceil(k, p.depth))))
}

// LenA and LenB are the number of floats that packed operands take: m rows of A, or n
// columns of B, of depth k.
func (p *PairKernel) LenA(m, k int) int { return ceil(m, p.MR) * p.MR * pairs(k) }
func (p *PairKernel) LenB(k, n int) int { return ceil(n, p.NR) * p.NR * pairs(k) }

// PackA packs m rows of A, of depth k, into dst.
func (p *PairKernel) PackA(dst []float32, a Matrix, m, k int) {
	p.packA.pack(dst, a.T(), k, m, p.MR)
}

// PackB packs n columns of B, of depth k, into dst.
func (p *PairKernel) PackB(dst []float32, b Matrix, k, n int) {
	p.packB.pack(dst, b, k, n, p.NR)
}

// StripA packs one strip of A, of at most MR rows: row i is at src + i·stride,
// contiguous along k.
func (p *PairKernel) StripA(dst, src []float32, stride, depth, rows int) {
	p.packA.cols(dst, src, stride, depth, rows)
}

// StripB packs one whole strip of B from rows of NR numbers one after the other, one
// for each k: what Part stores in a C of NR columns. dst may be src.
func (p *PairKernel) StripB(dst, src []float32, depth int) {
	p.packB.rows(dst, src, p.NR, depth, p.NR)
}

// pack packs a block of depth × width, element (k, j) of m.
func (f *pairPacks) pack(dst []float32, m Matrix, depth, width, strip int) {
	switch {
	case m.Coded != nil:
		piecewise.pieces(m, depth, width, strip, func(p piece) {
			pack := f.rows
			if p.deep {
				pack = f.cols
			}
			pack(dst[p.j*pairs(depth)+p.k/2*strip:][:pairs(p.depth)*strip], p.wide, p.stride, p.depth, p.width)
		})
	case m.Half != nil:
		packPairs(dst, m, m.Half, depth, width, strip, f.rowsHalf, f.colsHalf)
	default:
		packPairs(dst, m, m.Data, depth, width, strip, f.rows, f.cols)
	}
}

func packPairs[T float32 | uint16](dst []float32, m Matrix, data []T, depth, width, strip int, rows,
	cols func(dst []float32, src []T, stride, depth, width int)) {
	length := pairs(depth)
	if m.Col == 1 {
		for k := 0; k < depth; k += rowChunk {
			d := min(rowChunk, depth-k)
			for j := 0; j < width; j += strip {
				rows(dst[j*length+k/2*strip:][:pairs(d)*strip], data[k*m.Row+j:], m.Row, d, min(strip, width-j))
			}
		}
		return
	}
	for j := 0; j < width; j += strip {
		out, w := dst[j*length:][:strip*length], min(strip, width-j)
		if m.Row == 1 {
			cols(out, data[j*m.Col:], m.Col, depth, w)
		} else {
			packAnyPairs(out, m.At(0, j), strip, depth, w)
		}
	}
}

// packAnyPairs packs a strip of a matrix that is contiguous in neither direction.
func packAnyPairs(dst []float32, m Matrix, strip, depth, width int) {
	for k := 0; k < depth; k += 2 {
		for j := range width {
			w := rounded16(m.at(k, j))
			if k+1 < depth {
				w |= rounded16(m.at(k+1, j)) << 16
			}
			dst[k/2*strip+j] = math.Float32frombits(w)
		}
	}
}

// rounded16 rounds to bfloat16 as VCVTNE2PS2BF16 does.
func rounded16(f float32) uint32 {
	b := math.Float32bits(f)
	switch {
	case f != f:
		return b>>16 | 0x40
	case b&0x7f800000 == 0:
		return b >> 16 & 0x8000
	}
	return (b + 0x7fff + b>>16&1) >> 16
}
