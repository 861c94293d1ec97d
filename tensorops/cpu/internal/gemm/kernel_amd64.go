package gemm

import "golang.org/x/sys/cpu"

// AVX2 needs AVX2 and FMA.
var AVX2 = Kernel{
	Name: "avx2", MR: 6, NR: 16,
	tile:    []tileFunc{nil, tileAVX2_1, tileAVX2_2, tileAVX2_3, tileAVX2_4, tileAVX2_5, tileAVX2_6},
	strided: true, fetches: true,
	packRowsA: rows6, packRowsB: rows16,
	packColsA: cols6, packColsB: cols16,
	transpose: transposeEights, lanes: 8,
	widen: widenSixteens, decode: decodeAVX2,
}

// AVX512 needs AVX-512 F, and AVX2 for packing.
var AVX512 = Kernel{
	Name: "avx512", MR: 12, NR: 32,
	tile: []tileFunc{
		nil, tileAVX512_1, tileAVX512_2, tileAVX512_3, tileAVX512_4, tileAVX512_5, tileAVX512_6,
		tileAVX512_7, tileAVX512_8, tileAVX512_9, tileAVX512_10, tileAVX512_11, tileAVX512_12,
	},
	strided: true, fetches: true,
	packRowsA: rows12, packRowsB: rows32,
	packColsA: cols12, packColsB: cols32,
	transpose: transposeEights, lanes: 8,
	widen: widenSixteens, decode: decodeAVX2,
}

// piecewise widens what kernels of bfloat16 pack.
var piecewise = &AVX512

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

func rows12(dst, src []float32, stride, depth, width int) {
	rows(copy12, 12, dst, src, stride, depth, width)
}

func rows32(dst, src []float32, stride, depth, width int) {
	rows(copy32, 32, dst, src, stride, depth, width)
}

func cols12(dst, src []float32, stride, depth, width int) {
	cols(transpose8, 8, 12, 0, dst, src, stride, depth, width)
	cols(transpose4, 4, 12, 8, dst, src, stride, depth, width)
}

func cols32(dst, src []float32, stride, depth, width int) {
	for j := 0; j < 32; j += 8 {
		cols(transpose8, 8, 32, j, dst, src, stride, depth, width)
	}
}
