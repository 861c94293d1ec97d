package cpu

import (
	"golang.org/x/sys/cpu"

	"github.com/troupe-ml/troupe/tensorops/cpu/internal/attn"
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/gemm"
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/vec"
)

var (
	amxKernels    = kernels{name: "amx", gemm: &gemm.AVX512, bf16: gemm.AMX, fastBF16: true, attn: &attn.AVX512, vec: &vec.AVX512}
	avx512Kernels = kernels{name: "avx512", gemm: &gemm.AVX512, bf16: gemm.Rounded(&gemm.AVX512, vec.AVX512.RoundBF16), attn: &attn.AVX512, vec: &vec.AVX512}
	avx2Kernels   = kernels{name: "avx2", gemm: &gemm.AVX2, bf16: gemm.Rounded(&gemm.AVX2, vec.AVX2.RoundBF16), attn: &attn.AVX2, vec: &vec.AVX2}
)

// paths lists the paths of this architecture, best first. What is asked of the
// system (that it saves the registers) is part of what the library below tells.
func paths() []path {
	x := &cpu.X86
	avx2 := x.HasAVX2 && x.HasFMA
	avx512 := avx2 && x.HasBMI2 && x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL
	return []path{
		{&amxKernels, "AVX-512, and AMX tiles for bfloat16", avx512 && gemm.HasAMX()},
		{&avx512Kernels, "AVX-512 F, BW, DQ and VL", avx512},
		{&avx2Kernels, "AVX2 and FMA", avx2},
		{&goKernels, "", true},
	}
}
