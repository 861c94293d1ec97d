package gemm

// Matrix is an operand in memory: element (i, j) is Data[i·Row + j·Col], in float32, or the
// same of Half, in bfloat16.
type Matrix struct {
	Data     []float32
	Half     []uint16 // set instead of Data
	Row, Col int
}

// At is the matrix from row i and column j on.
func (m Matrix) At(i, j int) Matrix {
	at := i*m.Row + j*m.Col
	if m.Half != nil {
		return Matrix{Half: m.Half[min(at, len(m.Half)):], Row: m.Row, Col: m.Col}
	}
	return Matrix{Data: m.Data[min(at, len(m.Data)):], Row: m.Row, Col: m.Col}
}

// T is the transpose.
func (m Matrix) T() Matrix { return Matrix{Data: m.Data, Half: m.Half, Row: m.Col, Col: m.Row} }
