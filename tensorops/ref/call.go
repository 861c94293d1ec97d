package ref

import "github.com/troupe-ml/troupe/tensorops"

// call runs a program's own operation, which works on float32, on copies.
func call(op *tensorops.Op) error {
	c := op.Call()
	var back []func()
	err := c.Run(func(t tensorops.Tensor) tensorops.Array {
		if t.DType() != tensorops.Float32 {
			return tensorops.ArrayOf(t)
		}
		elements := Values(t)
		a := tensorops.Array{Shape: t.Shape(), Float: make([]float32, len(elements))}
		for i, v := range elements {
			a.Float[i] = float32(v)
		}
		back = append(back, func() {
			for i, v := range a.Float {
				elements[i] = float64(v)
			}
		})
		return a
	})
	for _, write := range back[min(len(back), floats(c.Reads)):] {
		write()
	}
	return err
}

func floats(ts []tensorops.Tensor) int {
	n := 0
	for _, t := range ts {
		if t.DType() == tensorops.Float32 {
			n++
		}
	}
	return n
}
