package gemm

import (
	"math"
	"sync"
	"time"
)

// PairGain measures, once, how many times as fast as AVX512 AVX512BF16 multiplies: by
// the tiles alone, on operands in the first-level cache. It takes half a millisecond and
// needs what AVX512BF16 needs. Some processors have one unit for VDPBF16PS where they
// have two for multiply-adds, and gain nothing.
var PairGain = sync.OnceValue(func() float64 {
	const (
		words  = 128 // the depth of the operands
		tiles  = 64  // in a run, which takes some tens of microseconds
		rounds = 6
	)
	a, b, c := make([]float32, AVX512.MR*words), make([]float32, AVX512.NR*words), make([]float32, AVX512.MR*AVX512.NR)
	for _, s := range [][]float32{a, b} {
		for i := range s {
			s[i] = 1
		}
	}
	fastest := [2]time.Duration{math.MaxInt64, math.MaxInt64}
	for range rounds { // by turns, so that both meet the same clock
		for i, tile := range []tileFunc{AVX512.tile[AVX512.MR], AVX512BF16.words.tile[AVX512BF16.MR]} {
			start := time.Now()
			for range tiles {
				tile(1, words, &a[0], &b[0], &c[0], AVX512.MR, AVX512.NR, AVX512.NR, false)
			}
			fastest[i] = min(fastest[i], time.Since(start))
		}
	}
	return pairGain(fastest[0], fastest[1])
})

// pairGain is the gain if a tile took so long, and one of as many words in pairs. Where the
// clock is too coarse to tell, as on Windows, it is what most processors gain: twice.
func pairGain(floats, pairs time.Duration) float64 {
	if floats <= 0 || pairs <= 0 {
		return 2
	}
	return 2 * float64(floats) / float64(pairs)
}
