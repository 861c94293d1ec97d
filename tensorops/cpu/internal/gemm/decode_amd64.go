package gemm

import "github.com/troupe-ml/troupe/tensorops/internal/quant"

// decodeAVX2 is quant.Format.Decode by vectors.
func decodeAVX2(f quant.Format, dst []float32, codes []byte, scales []float32) {
	blocks := len(dst) / quant.Block
	if blocks == 0 {
		return
	}
	_ = scales[blocks-1]
	if f == quant.NF4 {
		_ = codes[blocks*quant.Block/2-1]
		decodeNF4(&dst[0], &codes[0], &scales[0], blocks)
		return
	}
	_ = codes[blocks*quant.Block-1]
	decodeInt8(&dst[0], &codes[0], &scales[0], blocks)
}
