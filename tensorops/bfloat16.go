package tensorops

import "math"

// ToBFloat16 rounds to the nearest bfloat16 number, ties to even, and returns its bits. A NaN
// becomes a quiet NaN.
func ToBFloat16(f float32) uint16 {
	b := math.Float32bits(f)
	if f != f {
		return uint16(b>>16 | 0x40)
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// FromBFloat16 returns the number with the given bits.
func FromBFloat16(bits uint16) float32 { return math.Float32frombits(uint32(bits) << 16) }
