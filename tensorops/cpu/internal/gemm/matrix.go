package gemm

import (
	"math"

	"github.com/troupe-ml/troupe/tensorops/internal/quant"
)

// Matrix is an operand in memory: element (i, j) is Data[i·Row + j·Col], or that of
// Half, which is set instead of Data where the numbers are bfloat16 (the upper half
// of a float32). With Coded it is number First + i·Row + j·Col of rows in 8 or 4 bits, where Row or Col is the
// length of those rows and the other is 1. C is always float32.
type Matrix struct {
	Data     []float32
	Half     []uint16
	Coded    *quant.Matrix
	First    int
	Row, Col int
}

// At is the matrix from row i and column j on.
func (m Matrix) At(i, j int) Matrix {
	at := i*m.Row + j*m.Col
	return Matrix{m.Data[min(at, len(m.Data)):], m.Half[min(at, len(m.Half)):], m.Coded, m.First + at, m.Row, m.Col}
}

// T is the transpose.
func (m Matrix) T() Matrix { return Matrix{m.Data, m.Half, m.Coded, m.First, m.Col, m.Row} }

// wide reports whether the numbers lie there in float32.
func (m *Matrix) wide() bool { return m.Half == nil && m.Coded == nil }

// at is element (i, j).
func (m Matrix) at(i, j int) float32 {
	at := i*m.Row + j*m.Col
	switch {
	case m.Half != nil:
		return widened(m.Half[at])
	case m.Coded != nil:
		return m.Coded.At(m.First + at)
	}
	return m.Data[at]
}

// widened is a bfloat16 as a float32.
func widened(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }
