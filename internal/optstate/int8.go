package optstate

import "math"

// signBit is the sign in a code.
const signBit = 0x80

// Encode stores the elements of a block, and returns its scale. halves are the random bits of each element; nil: round to the nearest
// value, of two as near to the lower one.
func Encode(codes []byte, x []float32, ofRoot bool, halves []uint16) (scale float32) {
	codes = codes[:len(x)]
	for _, v := range x {
		scale = max(scale, magnitude(v, ofRoot)) // NaN if one is
	}
	scale = max(scale, minScale)
	c := signed
	if ofRoot {
		c = root
	}
	for i, v := range x {
		r := magnitude(v, ofRoot) / scale
		k := c.below(r)
		if k+1 < len(c.values) && r > c.values[k] {
			// In float64 the differences are exact.
			past, gap := float64(r)-float64(c.values[k]), float64(c.values[k+1])-float64(c.values[k])
			switch {
			case ofRoot && k == 0:
				k = 1
			case halves == nil && 2*past > gap, halves != nil && past*(1<<16) > (float64(halves[i])+0.5)*gap:
				k++
			}
		}
		if codes[i] = byte(k); !ofRoot && v < 0 && k > 0 {
			codes[i] |= signBit
		}
	}
	return scale
}

// magnitude returns what a code has a value for.
func magnitude(v float32, ofRoot bool) float32 {
	if ofRoot {
		return float32(math.Sqrt(float64(v)))
	}
	return math.Float32frombits(math.Float32bits(v) &^ (1 << 31))
}

// Decode reads the elements of a block.
func Decode(x []float32, codes []byte, scale float32, ofRoot bool) {
	codes = codes[:len(x)]
	if ofRoot {
		for i, c := range codes {
			v := root.values[c] * scale
			x[i] = v * v
		}
		return
	}
	for i, c := range codes {
		v := signed.values[c&^signBit] * scale
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
