//go:build !amd64

package cpu

// available lists the paths this processor can run, best first.
func available() []*kernels { return []*kernels{&goKernels} }
