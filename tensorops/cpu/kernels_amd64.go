package cpu

import (
	"sync"

	"golang.org/x/sys/cpu"

	"github.com/troupe-ml/troupe/tensorops/cpu/internal/attn"
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/gemm"
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/vec"
)

var (
	amxKernels = kernels{name: "amx", gemm: &gemm.AVX512, bf16: gemm.AMX, fastBF16: true, attn: &attn.AVX512, attnBF16: &attn.AMX,
		vec: &vec.AVX512BF16}
	avx512BF16Kernels = kernels{name: "avx512bf16", gemm: &gemm.AVX512, bf16: &gemm.AVX512BF16, fastBF16: true, attn: &attn.AVX512,
		attnBF16: &attn.AVX512BF16, vec: &vec.AVX512BF16}
	avx512Kernels = kernels{name: "avx512", gemm: &gemm.AVX512, bf16: gemm.Rounded(&gemm.AVX512, vec.AVX512.RoundBF16), attn: &attn.AVX512,
		vec: &vec.AVX512}
	avx2Kernels = kernels{name: "avx2", gemm: &gemm.AVX2, bf16: gemm.Rounded(&gemm.AVX2, vec.AVX2.RoundBF16), attn: &attn.AVX2,
		vec: &vec.AVX2}
)

// paths lists the paths of this architecture, best first. What is asked of the
// system (that it saves the registers) is part of what the library below tells.
// The order is by what a processor has, never by a measurement: the bits of a run depend on
// the path, so two processes on one machine must take the same. avx512bf16 comes before
// avx512 for this reason too where a processor has one unit for VDPBF16PS and two for
// multiply-adds: the arithmetic takes as long there, and the operands half the space.
var paths = sync.OnceValue(func() []path {
	x := &cpu.X86
	avx2 := x.HasAVX2 && x.HasFMA
	avx512 := avx2 && x.HasBMI2 && x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL
	return []path{
		{kernels: &amxKernels, needs: "AVX-512, and AMX tiles for bfloat16", has: avx512 && gemm.HasAMX()},
		{kernels: &avx512BF16Kernels, needs: "AVX-512 F, BW, DQ, VL and BF16", has: avx512 && x.HasAVX512BF16},
		{kernels: &avx512Kernels, needs: "AVX-512 F, BW, DQ and VL", has: avx512},
		{kernels: &avx2Kernels, needs: "AVX2 and FMA", has: avx2},
		{kernels: &goKernels, has: true},
	}
})
