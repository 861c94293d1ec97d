package attn_test

import (
	"golang.org/x/sys/cpu"

	"github.com/troupe-ml/troupe/tensorops/cpu/internal/attn"
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/gemm"
)

var all = []*attn.Kernel{&attn.AVX512, &attn.AVX2, &attn.Go}

// halves are the kernels that multiply bfloat16.
func halves() []*attn.Kernel {
	if !cpu.X86.HasAVX512BF16 {
		return nil
	}
	if !gemm.HasAMX() {
		return []*attn.Kernel{&attn.AVX512BF16}
	}
	return []*attn.Kernel{&attn.AVX512BF16, &attn.AMX}
}
