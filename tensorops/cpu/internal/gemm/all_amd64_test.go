package gemm_test

import (
	"golang.org/x/sys/cpu"

	"github.com/troupe-ml/troupe/tensorops/cpu/internal/gemm"
)

// multipliers are all whose packing this processor can run.
func multipliers() map[string]gemm.Multiplier {
	all := portable()
	if cpu.X86.HasAVX512BF16 {
		all["amx"] = gemm.AMX
		all["avx512bf16"] = &gemm.AVX512BF16
	}
	return all
}

func hasAMX() bool { return gemm.HasAMX() }
