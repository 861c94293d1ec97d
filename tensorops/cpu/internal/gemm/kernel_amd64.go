package gemm

import "golang.org/x/sys/cpu"

// AVX2 needs AVX2 and FMA.
var AVX2 = Kernel{
	Name: "avx2", MR: 6, NR: 16,
	tile:      []tileFunc{nil, tileAVX2_1, tileAVX2_2, tileAVX2_3, tileAVX2_4, tileAVX2_5, tileAVX2_6},
	strided:   true,
	packRowsA: rows6, packRowsB: rows16,
	packColsA: cols6, packColsB: cols16,
	transpose: transposeEights, lanes: 8,
	widen: widenSixteens,
}

// AVX512 needs AVX-512 F, and AVX2 for packing.
var AVX512 = Kernel{
	Name: "avx512", MR: 12, NR: 32,
	tile: []tileFunc{
		nil, tileAVX512_1, tileAVX512_2, tileAVX512_3, tileAVX512_4, tileAVX512_5, tileAVX512_6,
		tileAVX512_7, tileAVX512_8, tileAVX512_9, tileAVX512_10, tileAVX512_11, tileAVX512_12,
	},
	strided:   true,
	packRowsA: rows12, packRowsB: rows32,
	packColsA: cols12, packColsB: cols32,
	transpose: transposeEights, lanes: 8,
	widen: widenSixteens,
}

// Available lists the paths this processor can run, best first.
func Available() []*Kernel {
	var ks []*Kernel
	if cpu.X86.HasAVX2 && cpu.X86.HasFMA {
		if cpu.X86.HasAVX512F {
			ks = append(ks, &AVX512)
		}
		ks = append(ks, &AVX2)
	}
	return append(ks, &Go)
}

func rows6(dst, src []float32, stride, depth, width int) {
	rows(copy6, 6, dst, src, stride, depth, width)
}
func rows12(dst, src []float32, stride, depth, width int) {
	rows(copy12, 12, dst, src, stride, depth, width)
}
func rows16(dst, src []float32, stride, depth, width int) {
	rows(copy16, 16, dst, src, stride, depth, width)
}
func rows32(dst, src []float32, stride, depth, width int) {
	rows(copy32, 32, dst, src, stride, depth, width)
}

func rows(whole func(dst, src *float32, stride, depth int), strip int, dst, src []float32, stride, depth, width int) {
	if width == strip {
		whole(&dst[0], &src[0], 4*stride, depth)
		return
	}
	for k := range depth {
		copy(dst[k*strip:][:width], src[k*stride:])
	}
}

// transposeFunc is described at transpose8.
type transposeFunc func(dst *float32, strip int, src *float32, stride, eights, rows int)

func cols6(dst, src []float32, stride, depth, width int) {
	cols(transpose6, 6, 6, 0, dst, src, stride, depth, width)
}

func cols12(dst, src []float32, stride, depth, width int) {
	cols(transpose8, 8, 12, 0, dst, src, stride, depth, width)
	cols(transpose4, 4, 12, 8, dst, src, stride, depth, width)
}

func cols16(dst, src []float32, stride, depth, width int) {
	for j := 0; j < 16; j += 8 {
		cols(transpose8, 8, 16, j, dst, src, stride, depth, width)
	}
}

func cols32(dst, src []float32, stride, depth, width int) {
	for j := 0; j < 32; j += 8 {
		cols(transpose8, 8, 32, j, dst, src, stride, depth, width)
	}
}

// cols packs the elements j to j+lanes−1 of a strip, as far as they exist.
func cols(whole transposeFunc, lanes, strip, j int, dst, src []float32, stride, depth, width int) {
	n := min(lanes, width-j)
	if n <= 0 {
		return
	}
	if eights := depth / 8; eights > 0 {
		whole(&dst[j], 4*strip, &src[j*stride], 4*stride, eights, n)
	}
	for k := depth &^ 7; k < depth; k++ {
		for i := j; i < j+n; i++ {
			dst[k*strip+i] = src[i*stride+k]
		}
	}
}

// transposeEights transposes whole squares of 8 × 8 by vectors.
func transposeEights(dst []float32, dstRow int, src []float32, srcRow, depth, rows int) {
	if rows < 8 {
		transposeGo(dst, dstRow, src, srcRow, depth, rows)
		return
	}
	if depth >= 8 {
		transpose8(&dst[0], 4*dstRow, &src[0], 4*srcRow, depth/8, 8)
	}
	if k := depth &^ 7; k < depth {
		transposeGo(dst[k*dstRow:], dstRow, src[k:], srcRow, depth-k, 8)
	}
}

// widenSixteens widens sixteen numbers at a time by vectors.
func widenSixteens(dst []float32, src []uint16) {
	n := len(dst) &^ 15
	if n > 0 {
		_ = src[n-1]
		widen16(&dst[0], &src[0], n/16)
	}
	widenGo(dst[n:], src[n:])
}
