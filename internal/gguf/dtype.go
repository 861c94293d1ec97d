package gguf

import (
	"fmt"
	"math"
)

// Type is the type of a tensor's elements, with ggml's number.
type Type uint32

// The types that can be read and written.
const (
	F32  Type = 0
	F16  Type = 1
	Q8_0 Type = 8 // blocks of 32 numbers of 8 bits with a common scale in F16
	BF16 Type = 30
)

// BlockQ8 is the number of elements in a block of Q8_0, and blockBytesQ8 its bytes.
const (
	BlockQ8      = 32
	blockBytesQ8 = 2 + BlockQ8
)

// otherTypes names types of published files that are refused.
var otherTypes = map[Type]string{
	2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K",
	16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16",
	26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}

func (t Type) String() string {
	switch t {
	case F32:
		return "F32"
	case F16:
		return "F16"
	case BF16:
		return "BF16"
	case Q8_0:
		return "Q8_0"
	}
	if name, ok := otherTypes[t]; ok {
		return name
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// block returns the elements of a block and its bytes.
func (t Type) block() (elements, bytes int64, ok bool) {
	switch t {
	case F32:
		return 1, 4, true
	case F16, BF16:
		return 1, 2, true
	case Q8_0:
		return BlockQ8, blockBytesQ8, true
	}
	return 0, 0, false
}

// byteSize returns the bytes of a tensor. The shape is row by row: its last dimension is contiguous, and
// blocks do not cross its ends.
func byteSize(t Type, shape []int) (int64, error) {
	elements, size, ok := t.block()
	switch {
	case !ok:
		return 0, fmt.Errorf("its type is %s; Troupe reads F32, F16, BF16 and Q8_0. Use a file of one of these types, or the original model", t)
	case len(shape) == 0 || len(shape) > RankMax:
		return 0, fmt.Errorf("it has %d dimensions; the limits are 1 and %d", len(shape), RankMax)
	}
	for i, dim := range shape {
		d := int64(dim)
		if dim < 1 {
			return 0, fmt.Errorf("dimension %d in shape %v must be 1 or more", dim, shape)
		}
		if i == len(shape)-1 {
			if d%elements != 0 {
				return 0, fmt.Errorf("its rows of %d elements are not whole blocks of %d, which %s has", d, elements, t)
			}
			d /= elements
		}
		if size > math.MaxInt64/d {
			return 0, fmt.Errorf("%s %v takes more than 2^63 bytes", t, shape)
		}
		size *= d
	}
	return size, nil
}
