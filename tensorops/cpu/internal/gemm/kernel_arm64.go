package gemm

import "github.com/troupe-ml/troupe/tensorops/internal/quant"

// NEON needs nothing: every arm64 processor has it.
var NEON = Kernel{
	Name: "neon", MR: 6, NR: 16,
	tile:      []tileFunc{nil, tileNEON_1, tileNEON_2, tileNEON_3, tileNEON_4, tileNEON_5, tileNEON_6},
	strided:   true,
	packRowsA: rows6, packRowsB: rows16,
	packColsA: cols6, packColsB: cols16,
	transpose: transposeEights, lanes: 8,
	widen: widenSixteens, decode: quant.Format.Decode,
}

// piecewise widens what kernels of bfloat16 pack.
var piecewise = &NEON

// Available lists the paths this processor can run, best first.
func Available() []*Kernel { return []*Kernel{&NEON, &Go} }
