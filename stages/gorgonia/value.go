package gorgonia

import (
	"fmt"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/troupe-ml/troupe/tensorops"
)

// value makes a Gorgonia value from an array. It shares the array's memory, except for scalars and
// integers.
func value(a tensorops.Array, float tensor.Dtype) (G.Value, error) {
	if err := a.Check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInput, err)
	}
	if a.Len() == 0 {
		return nil, fmt.Errorf("%w: the shape is %v, but Gorgonia has no empty tensors", ErrInput, a.Shape)
	}
	scalar := len(a.Shape) == 0
	switch {
	case a.Int != nil && scalar:
		return G.NewI(int(a.Int[0])), nil
	case a.Int != nil:
		ints := make([]int, len(a.Int))
		for i, v := range a.Int {
			ints[i] = int(v)
		}
		return dense(a.Shape, ints), nil
	case a.Float != nil && float == tensor.Float32 && scalar:
		return G.NewF32(a.Float[0]), nil
	case a.Float != nil && float == tensor.Float32:
		return dense(a.Shape, a.Float), nil
	case a.Double != nil && float == tensor.Float64 && scalar:
		return G.NewF64(a.Double[0]), nil
	case a.Double != nil && float == tensor.Float64:
		return dense(a.Shape, a.Double), nil
	}
	return nil, fmt.Errorf("%w: the type is %v, but the graph is of %v", ErrInput, a.DType(), float)
}

func dense(shape []int, backing any) *tensor.Dense {
	return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(backing), tensor.WithEngine(G.StandardEngine{}))
}

// arrayOf returns a view of a value as an array of a shape with as many elements. It copies a value
// that is not contiguous.
func arrayOf(v G.Value, shape []int) (tensorops.Array, error) {
	a := tensorops.Array{Shape: shape}
	if t, ok := v.(*tensor.Dense); ok && (t.RequiresIterator() || t.IsView() || !t.DataOrder().IsRowMajor()) {
		t, ok := t.Materialize().(*tensor.Dense)
		if !ok || !t.DataOrder().IsRowMajor() {
			return a, fmt.Errorf("%w: a result of shape %v is not contiguous", ErrGraph, v.Shape())
		}
		v = t
	}
	switch d := v.Data().(type) {
	case []float32:
		a.Float = d
	case float32:
		a.Float = []float32{d}
	case []float64:
		a.Double = d
	case float64:
		a.Double = []float64{d}
	default:
		return a, fmt.Errorf("%w: a result has the unsupported type %T", ErrGraph, d)
	}
	return a, nil
}
