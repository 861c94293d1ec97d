package cpu

import (
	"sync"

	"github.com/troupe-ml/troupe/tensorops/cpu/internal/vec"
)

// exact is the best path whose loops below give the bits of plain Go on every processor: those for AVX-512 BF16 round
// numbers below 2^-126 to zero.
var exact = sync.OnceValue(func() *vec.Kernels {
	for _, k := range available() {
		if !k.vec.Flushes() {
			return k.vec
		}
	}
	return &vec.Go
})

// Add makes dst the sums of a and b, one by one. dst may be either.
func Add(dst, a, b []float32) { exact().Add(dst, a, b) }

// AddPast is Add for a dst that is too large to be found in a cache when it is read: it is stored past them.
func AddPast(dst, a, b []float32) { exact().AddPast(dst, a, b) }

// Widen makes dst the numbers that bfloat16 src stands for.
func Widen(dst []float32, src []uint16) { exact().FromBF16(dst, src) }

// Round makes dst src rounded to bfloat16, as tensorops.ToBFloat16 does.
func Round(dst []uint16, src []float32) { exact().ToBF16(dst, src) }
