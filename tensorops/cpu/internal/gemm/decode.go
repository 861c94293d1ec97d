package gemm

import "github.com/troupe-ml/troupe/tensorops/internal/quant"

// Decode stores the numbers of whole blocks in 8 or 4 bits by the fastest loops of this processor. All have the same
// results.
func Decode(f quant.Format, dst []float32, codes []byte, scales []float32) {
	fastest.decode(f, dst, codes, scales)
}

var fastest = Available()[0]
