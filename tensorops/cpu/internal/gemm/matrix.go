package gemm

// Matrix is an operand in memory: element (i, j) is Data[i·Row + j·Col].
type Matrix struct {
	Data     []float32
	Row, Col int
}

// At is the matrix from row i and column j on.
func (m Matrix) At(i, j int) Matrix {
	return Matrix{m.Data[min(i*m.Row+j*m.Col, len(m.Data)):], m.Row, m.Col}
}

// T is the transpose.
func (m Matrix) T() Matrix { return Matrix{m.Data, m.Col, m.Row} }
