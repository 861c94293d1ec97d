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

// MostOperands is how many numbers Sum adds at once.
const MostOperands = vec.MostOperands

// Sum makes dst the sums of two to MostOperands operands, one by one and in their order. dst may be any of them. past: dst is too
// large to be found in a cache when it is read, and is stored past them.
func Sum(dst []float32, past bool, src ...[]float32) { exact().Sum(dst, past, src...) }

// Widen makes dst the numbers that bfloat16 src stands for.
func Widen(dst []float32, src []uint16) { exact().FromBF16(dst, src) }

// Round makes dst src rounded to bfloat16, as tensorops.ToBFloat16 does.
func Round(dst []uint16, src []float32) { exact().ToBF16(dst, src) }
