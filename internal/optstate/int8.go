package optstate

import "math"

// signBit is the sign in a code.
const signBit = 0x80

// sign32 is the sign of a float32.
const sign32 = 1 << 31

// Encode stores the elements of a block, and returns its scale. halves are the random bits of each element; nil: round to the nearest
// value, of two as near to the lower one. The root code ignores signs.
func Encode(codes []byte, x []float32, ofRoot bool, halves []uint16) (scale float32) {
	largest := Largest(x)
	scale = ScaleOf(largest, ofRoot)
	if Finite(largest) {
		EncodeBy(codes, x, scale, ofRoot, halves)
	} else {
		EncodeInfinite(codes, x, ofRoot)
	}
	return scale
}

// Largest returns the bits of the largest magnitude: they have the order of magnitudes, and those of a NaN are above an infinity's.
func Largest(x []float32) (bits uint32) {
	for _, v := range x {
		bits = max(bits, math.Float32bits(v)&^sign32)
	}
	return bits
}

// Finite reports whether bits that Largest returned are those of a finite number.
func Finite(largest uint32) bool { return largest < exponent }

// ScaleOf returns the scale of a block from what Largest returns of it.
func ScaleOf(largest uint32, ofRoot bool) float32 {
	return max(magnitude(math.Float32frombits(largest), ofRoot), minScale)
}

// EncodeBy is Encode of a part of a block of finite numbers, with the block's scale.
func EncodeBy(codes []byte, x []float32, scale float32, ofRoot bool, halves []uint16) {
	codes = codes[:len(x)]
	c := signed
	if ofRoot {
		c = root
	}
	for i, v := range x {
		r := magnitude(v, ofRoot) / scale
		k := c.below(r)
		// Rounded up where the share of the way to the next value is above a number between 0 and 1. In float64 both sides are exact, and
		// their order is the sign of the difference: a jump would be predicted wrongly half of the time.
		share := 1.0 / 2
		if halves != nil {
			share = (float64(halves[i]) + 0.5) / (1 << 16)
		}
		rest := float64(share*c.gaps[k]) - (float64(r) - float64(c.value[k]))
		k += uint8(math.Float64bits(rest) >> 63)
		if !ofRoot {
			k |= uint8(math.Float32bits(v)>>24) & signBit & uint8(-int8(k)) // no sign of 0
		} else if k == 0 && r > 0 {
			k = 1
		}
		codes[i] = k
	}
}

// EncodeInfinite is Encode of a block whose scale is not finite: a number is 0 beside an infinity, and what is not finite has the last
// value.
func EncodeInfinite(codes []byte, x []float32, ofRoot bool) {
	codes = codes[:len(x)]
	last := byte(len(Values(ofRoot)) - 1)
	for i, v := range x {
		switch bits := math.Float32bits(v); {
		case bits&exponent != exponent:
			codes[i] = 0
		case ofRoot:
			codes[i] = last
		default:
			codes[i] = last | byte(bits>>24)&signBit
		}
	}
}

// magnitude returns what a code has a value for.
func magnitude(v float32, ofRoot bool) float32 {
	v = math.Float32frombits(math.Float32bits(v) &^ sign32)
	if ofRoot {
		return float32(math.Sqrt(float64(v)))
	}
	return v
}

// Decode reads the elements of a block.
func Decode(x []float32, codes []byte, scale float32, ofRoot bool) {
	codes = codes[:len(x)]
	if ofRoot {
		for i, c := range codes {
			v := root.value[c] * scale
			x[i] = v * v
		}
		return
	}
	for i, c := range codes {
		v := signed.value[c&^signBit] * scale
		x[i] = math.Float32frombits(math.Float32bits(v) | uint32(c&signBit)<<24)
	}
}

// DecodeAt reads elements of a tensor, starting at element first: codes and scales are those of the whole tensor.
func DecodeAt(x []float32, first int, codes []byte, scales []float32, ofRoot bool) {
	DecodePart(x, codes[first:], scales, first, ofRoot)
}

// DecodePart is DecodeAt with the codes from element first on.
func DecodePart(x []float32, codes []byte, scales []float32, first int, ofRoot bool) {
	for at := 0; at < len(x); {
		from := first + at
		n := min(Block-from%Block, len(x)-at)
		Decode(x[at:at+n], codes[at:at+n], scales[from/Block], ofRoot)
		at += n
	}
}
