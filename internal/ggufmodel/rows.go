package ggufmodel

import (
	"fmt"

	"github.com/troupe-ml/troupe/internal/safetensors"
)

// layout is the place of a tensor's elements: rows of bytes.
type layout struct {
	rows, rowBytes int
}

func layoutOf(shape []int, bytes int) (l layout) {
	l.rows = shape[0]
	if l.rows > 0 {
		l.rowBytes = bytes / l.rows
	}
	return l
}

// interleaved returns the rows of heads in the order for a rotation of neighboring channels: in each head,
// row i of the first half and row i of the second follow each other. back is the inverse.
func interleaved(data []byte, shape []int, heads int, back bool) ([]byte, error) {
	l := layoutOf(shape, len(data))
	if heads < 1 || l.rows%(2*heads) != 0 {
		return nil, fmt.Errorf("its %d rows are not %d heads of an even width", l.rows, heads)
	}
	half := l.rows / heads / 2
	out := make([]byte, len(data))
	for head := range heads {
		for i := range half {
			for part := range 2 {
				split := (head*2*half + part*half + i) * l.rowBytes
				joined := (head*2*half + 2*i + part) * l.rowBytes
				from, to := split, joined
				if back {
					from, to = joined, split
				}
				copy(out[to:to+l.rowBytes], data[from:from+l.rowBytes])
			}
		}
	}
	return out, nil
}

// transpose returns a matrix with rows and columns swapped; width is the bytes of an element.
func transpose(data []byte, shape []int, width int) ([]byte, error) {
	if len(shape) != 2 {
		return nil, fmt.Errorf("it has %d dimensions; a matrix has 2", len(shape))
	}
	out := make([]byte, len(data))
	for r := range shape[0] {
		for c := range shape[1] {
			from, to := (r*shape[1]+c)*width, (c*shape[0]+r)*width
			copy(out[to:to+width], data[from:from+width])
		}
	}
	return out, nil
}

// plus returns numbers in F32, each with an addend.
func plus(dtype string, data []byte, addend float32) ([]byte, error) {
	values, err := safetensors.Float32s(dtype, data)
	if err != nil {
		return nil, err
	}
	for i := range values {
		values[i] += addend
	}
	return safetensors.EncodeFloat32(values), nil
}

// swapped returns a shape with its dimensions in the other order.
func swapped(shape []int) []int {
	if len(shape) != 2 {
		return shape
	}
	return []int{shape[1], shape[0]}
}
