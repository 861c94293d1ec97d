package tensorops

import "fmt"

// Array is a tensor in ordinary Go memory, dense and row-major: a field of a sample or of
// a microbatch. One of Float, Double and Int has the numbers, and says their type; none, for
// an array without elements, is float32.
type Array struct {
	Shape  []int
	Float  []float32
	Double []float64
	Int    []int32
}

// NewArray makes an array of zeros. There are none of bfloat16: it is one of float32.
func NewArray(d DType, shape []int) Array {
	n := 1
	for _, dim := range shape {
		n *= dim
	}
	a := Array{Shape: shape}
	switch d {
	case Int32:
		a.Int = make([]int32, n)
	case Float64:
		a.Double = make([]float64, n)
	case Float32, BFloat16:
		a.Float = make([]float32, n)
	}
	return a
}

// DType is the type of the numbers.
func (a Array) DType() DType {
	switch {
	case a.Int != nil:
		return Int32
	case a.Double != nil:
		return Float64
	}
	return Float32
}

// Len is the number of elements that there are.
func (a Array) Len() int { return len(a.Float) + len(a.Double) + len(a.Int) }

// Bytes views the numbers as bytes, for Upload.
func (a Array) Bytes() []byte {
	switch a.DType() {
	case Int32:
		return bytesOf(a.Int)
	case Float64:
		return bytesOf(a.Double)
	}
	return bytesOf(a.Float)
}

// Check says whether the shape and the numbers fit each other.
func (a Array) Check() error {
	t, err := shaped(a.DType(), a.Shape)
	if err != nil {
		return err
	}
	if n := a.Len(); n != t.Len() {
		return fmt.Errorf("%w: %d numbers for the shape %v, which has %d", ErrShape, n, a.Shape, t.Len())
	}
	types := 0
	for _, given := range []bool{a.Float != nil, a.Double != nil, a.Int != nil} {
		if given {
			types++
		}
	}
	if types > 1 {
		return fmt.Errorf("%w: an array of %v has numbers of %d types; give one", ErrShape, a.Shape, types)
	}
	return nil
}
