package gemm

import (
	"sync"
	"unsafe"
)

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

// amxWork is a strip in float32, BlockK deep.
type amxWork [amxStrip * BlockK]float32

var amxWorks = sync.Pool{New: func() any { return new(amxWork) }}

func (amx) PackA(dst []float32, a Matrix, m, k int) {
	work := amxWorks.Get().(*amxWork)
	defer amxWorks.Put(work)
	steps := ceil(k, amxStep)
	padded := steps * amxStep
	for i := 0; i < m; i += amxStrip {
		rows, at, stride := min(amxStrip, m-i), a.At(i, 0), a.Row
		src := at.Data
		if a.Col != 1 || rows < amxStrip || k < padded {
			src, stride = work[:], padded
			clear(work[:amxStrip*padded])
			switch {
			case a.Col == 1:
				for r := range rows {
					copy(work[r*padded:][:k], at.Data[r*a.Row:])
				}
			case a.Row == 1:
				AVX512.Transpose(work[:], padded, at.Data, a.Col, k, rows)
			default:
				for r := range rows {
					for c := range k {
						work[r*padded+c] = at.Data[r*a.Row+c*a.Col]
					}
				}
			}
		}
		packRowsBF16(&dst[amxLen(i, k)], &src[0], 4*stride, steps)
	}
}

func (amx) PackB(dst []float32, b Matrix, k, n int) {
	work := amxWorks.Get().(*amxWork)
	defer amxWorks.Put(work)
	steps := ceil(k, amxStep)
	for j := 0; j < n; j += amxStrip {
		clear(work[k*amxStrip : steps*amxStep*amxStrip])
		AVX512.PackB(work[:], b.At(0, j), k, min(amxStrip, n-j))
		packPairsBF16(&dst[amxLen(j, k)], &work[0], steps)
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
