package optstate

import (
	"math"

	"github.com/troupe-ml/troupe/internal/base/rng"
)

// exponent has the bits of a float32's exponent, all of which an infinity or a NaN has.
const exponent = 0x7f80_0000

// RoundBF16 stores numbers in bfloat16. halves are the random bits of each; nil: round to the nearest number, ties to even.
// Unlike the conversions of some processors it keeps numbers below 2^-126.
func RoundBF16(to []uint16, x []float32, halves []uint16) {
	to = to[:len(x)]
	for i, v := range x {
		b := math.Float32bits(v)
		add := uint32(0x7fff) + b>>16&1
		if halves != nil {
			add = uint32(halves[i])
		}
		switch up := b + add; {
		case v != v:
			to[i] = uint16(b>>16) | 0x40 // still a NaN
		case halves != nil && up&exponent == exponent: // not from a finite number to an infinity
			to[i] = uint16(b >> 16)
		default:
			to[i] = uint16(up >> 16)
		}
	}
}

// Halves stores the random bits of elements from index first on: those of element i are half i mod 8 of the random block
// (update, i div 8).
func Halves(to []uint16, key rng.Key, update, first uint64) {
	for i := 0; i < len(to); {
		at := first + uint64(i)
		var words [4]uint32
		words[0], words[1], words[2], words[3] = rng.Block(key, update, at/8)
		for k := at % 8; k < 8 && i < len(to); k++ {
			to[i] = uint16(words[k/2] >> (16 * (k % 2)))
			i++
		}
	}
}
