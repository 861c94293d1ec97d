package cpu

import (
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/attn"
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/gemm"
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/vec"
)

var neonKernels = kernels{name: "neon", gemm: &gemm.NEON, bf16: gemm.Rounded(&gemm.NEON, vec.NEON.RoundBF16), attn: &attn.NEON,
	vec: &vec.NEON}

// paths lists the paths of this architecture, best first. Every arm64 processor has NEON.
func paths() []path {
	return []path{{kernels: &neonKernels, needs: "NEON", has: true}, {kernels: &goKernels, has: true}}
}
