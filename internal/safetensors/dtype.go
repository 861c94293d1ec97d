package safetensors

import (
	"fmt"
	"math"
)

// elementBytes has every supported dtype. The format also has types narrower than a byte; they are
// refused as unknown.
var elementBytes = map[string]int64{
	"BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1,
	"U16": 2, "I16": 2, "F16": 2, "BF16": 2,
	"U32": 4, "I32": 4, "F32": 4,
	"U64": 8, "I64": 8, "F64": 8,
}

// byteSize returns the bytes of a tensor. It multiplies only after checking that the product fits,
// even if another dimension is zero.
func byteSize(dtype string, shape []int) (int64, error) {
	size, ok := elementBytes[dtype]
	if !ok {
		return 0, fmt.Errorf("unknown dtype %q", dtype)
	}
	if len(shape) > RankMax {
		return 0, fmt.Errorf("it has %d dimensions; the limit is %d", len(shape), RankMax)
	}
	empty := false
	for _, dim := range shape {
		switch {
		case dim < 0:
			return 0, fmt.Errorf("dimension %d in shape %v is negative", dim, shape)
		case dim == 0:
			empty = true
		case size > math.MaxInt64/int64(dim):
			return 0, fmt.Errorf("%s %v takes more than 2^63 bytes", dtype, shape)
		default:
			size *= int64(dim)
		}
	}
	if empty {
		return 0, nil
	}
	return size, nil
}
