package vec

import "math"

// ToBF16 rounds to bfloat16, the upper half of a float32, to the nearest and
// ties to even. A NaN becomes a quiet one. The path avx512bf16 takes numbers below 2^-126 for
// zero.
func (k *Kernels) ToBF16(dst []uint16, src []float32) {
	src = src[:len(dst)]
	n := len(dst) &^ 31
	k.toBF16(dst[:n], src[:n])
	if k.flushes {
		flushToBF16Go(dst[n:], src[n:])
	} else {
		toBF16Go(dst[n:], src[n:])
	}
}

// Flushes reports whether ToBF16 takes numbers below 2^-126 for zero.
func (k *Kernels) Flushes() bool { return k.flushes }

// FromBF16 widens bfloat16.
func (k *Kernels) FromBF16(dst []float32, src []uint16) {
	src = src[:len(dst)]
	n := len(dst) &^ 31
	k.fromBF16(dst[:n], src[:n])
	fromBF16Go(dst[n:], src[n:])
}

// RoundBF16 rounds to what bfloat16 can hold.
func (k *Kernels) RoundBF16(dst, src []float32) {
	src = src[:len(dst)]
	n := len(dst) &^ 31
	k.roundBF16(dst[:n], src[:n])
	roundBF16Go(dst[n:], src[n:])
}

// upperHalf rounds a float32 to its upper 16 bits.
func upperHalf(f float32) uint32 {
	b := math.Float32bits(f)
	if f != f {
		return b>>16 | 0x40
	}
	return (b + 0x7fff + b>>16&1) >> 16
}

func toBF16Go(dst []uint16, src []float32) {
	for i, f := range src {
		dst[i] = uint16(upperHalf(f))
	}
}

// flushToBF16Go is what the processor's instruction does.
func flushToBF16Go(dst []uint16, src []float32) {
	const exponent = 0x7f80
	for i, f := range src {
		if dst[i] = uint16(upperHalf(f)); math.Float32bits(f)>>16&exponent == 0 {
			dst[i] &= 0x8000
		}
	}
}

func fromBF16Go(dst []float32, src []uint16) {
	for i, h := range src {
		dst[i] = math.Float32frombits(uint32(h) << 16)
	}
}

func roundBF16Go(dst, src []float32) {
	for i, f := range src {
		dst[i] = math.Float32frombits(upperHalf(f) << 16)
	}
}
