//go:build !amd64 && !arm64

package vec

// Available lists the paths this processor can run, best first.
func Available() []*Kernels { return []*Kernels{&Go} }
