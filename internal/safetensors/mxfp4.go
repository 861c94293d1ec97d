package safetensors

import (
	"fmt"
	"math"
)

// Numbers in MXFP4 (Open Compute Project, Microscaling Formats 1.0): codes of 4 bits (E2M1), two in a byte, the first one in the low
// half, and a scale for each block of 32, a power of two as a byte (E8M0). Every number within the range of float32 is exact in it, and in
// bfloat16.
const (
	mxBlock = 32
	mxBias  = 127 // of the exponents
	mxNaN   = 255 // a scale that stands for no number
)

// e2m1 are the values of the codes without a sign.
var e2m1 = [8]float32{0, 0.5, 1, 1.5, 2, 3, 4, 6}

// DecodeMXFP4 reads numbers from index first on. There are 16 bytes of codes for each scale. A scale that stands for no number, or a
// number beyond float32, is an error.
func DecodeMXFP4(into []float32, codes, scales []byte, first int) error {
	if len(codes)%(mxBlock/2) != 0 || len(codes)/(mxBlock/2) != len(scales) {
		return fmt.Errorf("there are %d bytes of codes for %d scales: each scale has %d", len(codes), len(scales), mxBlock/2)
	}
	if n := 2 * len(codes); first < 0 || first > n || len(into) > n-first {
		return fmt.Errorf("numbers %d to %d do not exist; there are %d", first, first+len(into), n)
	}
	var values [16]float32 // of a block's codes
	scaleOf := -1
	for i := range into {
		at := first + i
		if block := at / mxBlock; block != scaleOf {
			scale := scales[block]
			if scaleOf = block; scale == mxNaN {
				return fmt.Errorf("the scale of block %d is %d, which stands for no number", block, scale)
			}
			factor := math.Ldexp(1, int(scale)-mxBias)
			for c, v := range e2m1 {
				values[c] = float32(float64(v) * factor)
				values[c+8] = -values[c]
			}
		}
		v := values[codes[at/2]>>(4*(at%2))&0xf]
		if math.IsInf(float64(v), 0) {
			return fmt.Errorf("number %d has the scale 2^%d and exceeds float32", at, int(scales[at/mxBlock])-mxBias)
		}
		into[i] = v
	}
	return nil
}
