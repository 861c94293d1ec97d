package tensorops

import (
	"errors"
	"testing"
)

func TestArray(t *testing.T) {
	for _, c := range []struct {
		name  string
		array Array
		dtype DType
		bytes int
		err   error
	}{
		{"float32", Array{Shape: []int{2, 2}, Float: make([]float32, 4)}, Float32, 16, nil},
		{"float64", Array{Shape: []int{3}, Double: make([]float64, 3)}, Float64, 24, nil},
		{"int32", Array{Shape: []int{1, 5}, Int: make([]int32, 5)}, Int32, 20, nil},
		{"one number", Array{Float: []float32{1}}, Float32, 4, nil},
		{"no elements", Array{Shape: []int{0, 7}}, Float32, 0, nil},
		{"too few", Array{Shape: []int{2, 2}, Float: make([]float32, 3)}, Float32, 12, ErrShape},
		{"negative", Array{Shape: []int{-1}, Float: make([]float32, 1)}, Float32, 4, ErrShape},
		{"two types", Array{Shape: []int{2}, Float: make([]float32, 1), Int: make([]int32, 1)}, Int32, 4, ErrShape},
	} {
		t.Run(c.name, func(t *testing.T) {
			if d := c.array.DType(); d != c.dtype {
				t.Errorf("the type is %v, want %v", d, c.dtype)
			}
			if n := len(c.array.Bytes()); n != c.bytes {
				t.Errorf("%d bytes, want %d", n, c.bytes)
			}
			if err := c.array.Check(); !errors.Is(err, c.err) {
				t.Errorf("error %v, want %v", err, c.err)
			}
		})
	}
}
