package cpu

import (
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/attn"
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/gemm"
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/vec"
)

// kernels is one path: the inner loops on which the last bit of everything
// depends.
type kernels struct {
	name string
	gemm gemm.Multiplier // float32
	bf16 gemm.Multiplier // of operands rounded to bfloat16
	// fastBF16: bf16 is faster than gemm.
	fastBF16 bool

	attn     *attn.Kernel
	attnBF16 *attn.Kernel // of operands rounded to bfloat16, where that is faster; else nil
	vec      *vec.Kernels
}

// path is a kernel path by its name, and what it needs of the processor.
type path struct {
	kernels *kernels
	needs   string
	has     bool // the processor and the system have it
}

// available lists the paths this processor can run, best first.
func available() []*kernels {
	var ks []*kernels
	for _, p := range paths() {
		if p.has {
			ks = append(ks, p.kernels)
		}
	}
	return ks
}

var goKernels = kernels{name: "go", gemm: &gemm.Go, bf16: gemm.Rounded(&gemm.Go, vec.Go.RoundBF16), attn: &attn.Go, vec: &vec.Go}
