//go:build !amd64

package gemm_test

import "github.com/troupe-ml/troupe/tensorops/cpu/internal/gemm"

// multipliers are all whose packing this processor can run.
func multipliers() map[string]gemm.Multiplier { return portable() }

func hasAMX() bool { return false }
