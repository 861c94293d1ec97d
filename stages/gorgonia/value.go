package gorgonia

import (
	"fmt"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/troupe-ml/troupe/tensorops"
)

// value makes a Gorgonia value of an array, over the same memory but for scalars and
// integers.
func value(a tensorops.Array, float tensor.Dtype) (G.Value, error) {
	if err := a.Check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInput, err)
	}
	if a.Len() == 0 {
		return nil, fmt.Errorf("%w: shape %v: Gorgonia has no empty tensors", ErrInput, a.Shape)
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
	return nil, fmt.Errorf("%w: it is of type %v, the graph of %v", ErrInput, a.DType(), float)
}

func dense(shape []int, backing any) *tensor.Dense {
	return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(backing), tensor.WithEngine(G.StandardEngine{}))
}

// arrayOf views a value as an array of a shape with as many elements; what does not lie row
// by row is copied.
func arrayOf(v G.Value, shape []int) (tensorops.Array, error) {
	a := tensorops.Array{Shape: shape}
	if t, ok := v.(*tensor.Dense); ok && (t.RequiresIterator() || t.IsView() || !t.DataOrder().IsRowMajor()) {
		t, ok := t.Materialize().(*tensor.Dense)
		if !ok || !t.DataOrder().IsRowMajor() {
			return a, fmt.Errorf("%w: a result of shape %v does not lie row by row", ErrGraph, v.Shape())
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
		return a, fmt.Errorf("%w: a result of type %T", ErrGraph, d)
	}
	return a, nil
}
