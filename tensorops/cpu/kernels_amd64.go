package cpu

import "golang.org/x/sys/cpu"

var avx2Kernels = kernels{name: "avx2", mr: 6, nr: 16, tile: tileAVX2}

// available lists the paths this processor can run, best first.
func available() []*kernels {
	if cpu.X86.HasAVX2 && cpu.X86.HasFMA {
		return []*kernels{&avx2Kernels, &goKernels}
	}
	return []*kernels{&goKernels}
}

// tileAVX2 is in tile_avx2_amd64.s.
//
//go:noescape
func tileAVX2(k int, a, b, c *float32, ldc int, add bool)
