package tensorops

import "math"

// ToBFloat16 rounds to the nearest number that bfloat16 can hold, ties to even, and returns
// its bits. A NaN becomes a quiet one.
func ToBFloat16(f float32) uint16 {
	b := math.Float32bits(f)
	if f != f {
		return uint16(b>>16 | 0x40)
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// FromBFloat16 is the number that the bits stand for.
func FromBFloat16(bits uint16) float32 { return math.Float32frombits(uint32(bits) << 16) }
