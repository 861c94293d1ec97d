package vec

import "unsafe"

// RoPE turns the pairs (i, i + n) of each head of a row by the angles whose cosines and sines are given, n of them; or
// back. The channels of a head behind the first 2n stay.
func (k *Kernels) RoPE(row, cos, sin []float32, heads int, back bool) {
	half := len(cos)
	if heads == 0 || half == 0 {
		return
	}
	width := len(row) / heads
	row, sin = row[:(heads-1)*width+2*half], sin[:half]
	a, b := &row[0], &row[half]
	if back {
		// The other of a pair turns the other way.
		a, b = b, a
	}
	k.rope(a, b, cos, sin, heads, width)
}

func ropeGo(a, b *float32, cos, sin []float32, heads, stride int) {
	for h := range heads {
		at := uintptr(4 * h * stride)
		x := unsafe.Slice((*float32)(unsafe.Add(unsafe.Pointer(a), at)), len(cos))
		y := unsafe.Slice((*float32)(unsafe.Add(unsafe.Pointer(b), at)), len(cos))
		for i, c := range cos {
			s := sin[i]
			x[i], y[i] = x[i]*c-float32(y[i]*s), y[i]*c+float32(x[i]*s)
		}
	}
}
