package tensorops

import "fmt"

// Array is a contiguous row-major tensor in ordinary Go memory: for example a field of a sample or
// of a microbatch. One of Float, Double and Int holds the numbers and determines their type. If
// none does, because the array has no elements, the type is float32.
type Array struct {
	Shape  []int
	Float  []float32
	Double []float64
	Int    []int32
}

// NewArray makes an array of zeros. There are no bfloat16 arrays: for BFloat16 the array is
// float32.
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

// DType returns the type of the numbers.
func (a Array) DType() DType {
	switch {
	case a.Int != nil:
		return Int32
	case a.Double != nil:
		return Float64
	}
	return Float32
}

// Len returns the number of elements.
func (a Array) Len() int { return len(a.Float) + len(a.Double) + len(a.Int) }

// Bytes returns a view of the numbers as bytes, for Upload.
func (a Array) Bytes() []byte {
	switch a.DType() {
	case Int32:
		return bytesOf(a.Int)
	case Float64:
		return bytesOf(a.Double)
	}
	return bytesOf(a.Float)
}

// Check returns an ErrShape if the number of elements does not match the shape, or if there are
// numbers of several types.
func (a Array) Check() error {
	t, err := shaped(a.DType(), a.Shape)
	if err != nil {
		return err
	}
	if n := a.Len(); n != t.Len() {
		return fmt.Errorf("%w: there are %d numbers, but the shape %v has %d", ErrShape, n, a.Shape, t.Len())
	}
	types := 0
	for _, given := range []bool{a.Float != nil, a.Double != nil, a.Int != nil} {
		if given {
			types++
		}
	}
	if types > 1 {
		return fmt.Errorf("%w: an array of shape %v has numbers of %d types: set only one of Float, Double and Int", ErrShape, a.Shape, types)
	}
	return nil
}
