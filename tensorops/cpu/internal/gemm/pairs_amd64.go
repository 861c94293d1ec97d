package gemm

// AVX512BF16 multiplies bfloat16 by VDPBF16PS. It needs AVX-512 F, BW, VL and BF16, and
// BMI2.
var AVX512BF16 = PairKernel{
	Name: "avx512bf16", MR: 12, NR: 32, depth: 1024,
	tile: []pairTileFunc{
		nil, tileAVX512BF16_1, tileAVX512BF16_2, tileAVX512BF16_3, tileAVX512BF16_4, tileAVX512BF16_5, tileAVX512BF16_6,
		tileAVX512BF16_7, tileAVX512BF16_8, tileAVX512BF16_9, tileAVX512BF16_10, tileAVX512BF16_11, tileAVX512BF16_12,
	},
	packA: pairPacks{rows: pairRows12, cols: pairCols12, rowsHalf: pairRows12Half, colsHalf: pairCols12Half},
	packB: pairPacks{rows: pairRows32, cols: pairCols32, rowsHalf: pairRows32Half, colsHalf: pairCols32Half},
}

// The strips' functions take slices and strides in numbers; those in assembly take
// pointers and strides in bytes. dst and src are as long as they must be at the least.

func pairRows12(dst, src []float32, stride, depth, width int) {
	pairsRows12(&dst[0], &src[0], 4*stride, depth, width)
}
func pairRows32(dst, src []float32, stride, depth, width int) {
	pairsRows32(&dst[0], &src[0], 4*stride, depth, width)
}
func pairRows12Half(dst []float32, src []uint16, stride, depth, width int) {
	pairsRows12Half(&dst[0], &src[0], 2*stride, depth, width)
}
func pairRows32Half(dst []float32, src []uint16, stride, depth, width int) {
	pairsRows32Half(&dst[0], &src[0], 2*stride, depth, width)
}

func pairCols12(dst, src []float32, stride, depth, width int) {
	pairsCols12(&dst[0], &src[0], 4*stride, depth, width)
}
func pairCols32(dst, src []float32, stride, depth, width int) {
	for j := 0; j < width; j += 16 {
		pairsCols16(&dst[j], &src[j*stride], 4*stride, depth, width-j)
	}
}
func pairCols12Half(dst []float32, src []uint16, stride, depth, width int) {
	pairsCols12Half(&dst[0], &src[0], 2*stride, depth, width)
}
func pairCols32Half(dst []float32, src []uint16, stride, depth, width int) {
	for j := 0; j < width; j += 16 {
		pairsCols16Half(&dst[j], &src[j*stride], 2*stride, depth, width-j)
	}
}
