package ref

import "github.com/troupe-ml/troupe/tensorops"

// call runs a program's own operation, which works on float32, on copies.
func call(op *tensorops.Op) error { return op.Call().Run(copied, stored) }

// single reports whether a program sees the numbers, which are float64 here, in float32.
func single(t tensorops.Tensor) bool {
	return t.DType() == tensorops.Float32 || t.DType() == tensorops.BFloat16
}

func copied(t tensorops.Tensor) tensorops.Array {
	if !single(t) {
		return tensorops.ArrayOf(t)
	}
	a := tensorops.NewArray(tensorops.Float32, t.Shape())
	for i, v := range Values(t) {
		a.Float[i] = float32(v)
	}
	return a
}

func stored(t tensorops.Tensor, a tensorops.Array) {
	if !single(t) {
		return
	}
	elements := Values(t)
	for i, v := range a.Float {
		if elements[i] = float64(v); t.DType() == tensorops.BFloat16 {
			elements[i] = bf16(elements[i])
		}
	}
}
