//go:build !amd64 && !arm64

package gemm

// Available lists the paths this processor can run, best first.
func Available() []*Kernel { return []*Kernel{&Go} }
