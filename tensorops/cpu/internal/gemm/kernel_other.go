//go:build !amd64 && !arm64

package gemm

// piecewise widens what kernels of bfloat16 pack.
var piecewise = &Go

// Available lists the paths this processor can run, best first.
func Available() []*Kernel { return []*Kernel{&Go} }
