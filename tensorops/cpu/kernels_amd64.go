package cpu

import (
	"fmt"
	"sync"

	"golang.org/x/sys/cpu"

	"github.com/troupe-ml/troupe/tensorops/cpu/internal/attn"
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/gemm"
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/vec"
)

var (
	amxKernels        = kernels{name: "amx", gemm: &gemm.AVX512, bf16: gemm.AMX, fastBF16: true, attn: &attn.AVX512, vec: &vec.AVX512BF16}
	avx512BF16Kernels = kernels{name: "avx512bf16", gemm: &gemm.AVX512, bf16: &gemm.AVX512BF16, fastBF16: true, attn: &attn.AVX512, attnBF16: &attn.AVX512BF16, vec: &vec.AVX512BF16}
	avx512Kernels     = kernels{name: "avx512", gemm: &gemm.AVX512, bf16: gemm.Rounded(&gemm.AVX512, vec.AVX512.RoundBF16), attn: &attn.AVX512, vec: &vec.AVX512}
	avx2Kernels       = kernels{name: "avx2", gemm: &gemm.AVX2, bf16: gemm.Rounded(&gemm.AVX2, vec.AVX2.RoundBF16), attn: &attn.AVX2, vec: &vec.AVX2}
)

// leastGain is how many times as fast as multiply-adds bfloat16 must be multiplied for
// the path that does so to be the better one.
const leastGain = 1.2

// paths lists the paths of this architecture, best first. What is asked of the
// system (that it saves the registers) is part of what the library below tells.
// Which of avx512bf16 and avx512 is the better one is measured, unless there is AMX,
// which is better than both.
var paths = sync.OnceValue(func() []path {
	x := &cpu.X86
	avx2 := x.HasAVX2 && x.HasFMA
	avx512 := avx2 && x.HasBMI2 && x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL
	ps := []path{
		{kernels: &amxKernels, needs: "AVX-512, and AMX tiles for bfloat16", has: avx512 && gemm.HasAMX()},
		{kernels: &avx512BF16Kernels, needs: "AVX-512 F, BW, DQ, VL and BF16", has: avx512 && x.HasAVX512BF16},
		{kernels: &avx512Kernels, needs: "AVX-512 F, BW, DQ and VL", has: avx512},
		{kernels: &avx2Kernels, needs: "AVX2 and FMA", has: avx2},
		{kernels: &goKernels, has: true},
	}
	if amx, pairs := ps[0], ps[1]; pairs.has && !amx.has {
		ps[1], ps[2] = byGain(ps[1], ps[2], gemm.PairGain())
	}
	return ps
})

// byGain orders avx512bf16 and avx512, the better one first, and says why.
func byGain(pairs, floats path, gain float64) (first, second path) {
	pairs.note = fmt.Sprintf("; it multiplies bfloat16 %.1f times as fast as float32", gain)
	if gain >= leastGain {
		return pairs, floats
	}
	pairs.note += ", which is too little to be of use"
	return floats, pairs
}
