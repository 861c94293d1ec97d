package ref

import (
	"fmt"

	"github.com/troupe-ml/troupe/tensorops"
)

// storedBytes is the size of a stored element: everything is a float64 but the
// token ids.
func storedBytes(d tensorops.DType) int {
	if d == tensorops.Int32 {
		return 4
	}
	return 8
}

// Values is a live view of a contiguous tensor's numbers. Don't use it while a
// list that touches the tensor is with the device.
func Values(t tensorops.Tensor) []float64 {
	if t.DType() == tensorops.Int32 || !t.Contiguous() {
		panic(fmt.Sprintf("ref: values of %v: it must be a contiguous tensor of floating-point numbers", t))
	}
	return tensorops.Elements[float64](t)
}

// Set replaces a contiguous tensor's numbers.
func Set(t tensorops.Tensor, values []float64) {
	v := Values(t)
	if len(v) != len(values) {
		panic(fmt.Sprintf("ref: set %v to %d values", t, len(values)))
	}
	copy(v, values)
}

// rowOf is row n of a matrix, which may be columns of a wider one.
func rowOf(t tensorops.Tensor, n int) []float64 {
	if t.Cols() == 0 { // a view may have rows apart and no elements
		return nil
	}
	return tensorops.Elements[float64](t)[n*t.Stride():][:t.Cols()]
}

// ids views a tensor of token ids.
func ids(t tensorops.Tensor) []int32 { return tensorops.Elements[int32](t) }

// matrix is a tensor taken as rows × cols, of which each element is reached by
// its place, whatever the strides.
type matrix struct {
	elements         []float64
	rows, cols       int
	rowStep, colStep int
}

func matrixOf(t tensorops.Tensor) matrix {
	return matrix{tensorops.Elements[float64](t), t.Rows(), t.Cols(), t.Stride(), 1}
}

// at is the place of row i, column j.
func (m matrix) at(i, j int) *float64 { return &m.elements[i*m.rowStep+j*m.colStep] }

// transposed is the same memory with rows for columns.
func (m matrix) transposed() matrix {
	return matrix{m.elements, m.cols, m.rows, m.colStep, m.rowStep}
}
