//go:build !amd64 && !arm64

package cpu

// paths lists the paths of this architecture, best first.
func paths() []path { return []path{{kernels: &goKernels, has: true}} }
