package cpu

import "github.com/troupe-ml/troupe/tensorops/cpu/internal/gemm"

// kernels is one path: the inner loops on which the last bit of everything
// depends.
type kernels struct {
	name string
	gemm *gemm.Kernel
	// exp computes dst[i] = e^src[i], within 2 ulp where the result is a normal
	// number. dst may be src.
	exp func(dst, src []float32)
}

// goKernels is the path that every processor can run.
var goKernels = kernels{name: "go", gemm: &gemm.Go, exp: expGo}

func expGo(dst, src []float32) {
	for i, v := range src {
		dst[i] = exp32(v)
	}
}
