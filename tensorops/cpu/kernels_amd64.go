package cpu

import (
	"golang.org/x/sys/cpu"

	"github.com/troupe-ml/troupe/tensorops/cpu/internal/gemm"
)

var avx2Kernels = kernels{name: "avx2", gemm: &gemm.AVX2, exp: expEights}

// available lists the paths this processor can run, best first.
func available() []*kernels {
	if cpu.X86.HasAVX2 && cpu.X86.HasFMA {
		return []*kernels{&avx2Kernels, &goKernels}
	}
	return []*kernels{&goKernels}
}

// expAVX2 is in exp_avx2_amd64.s.
//
//go:noescape
func expAVX2(dst, src *float32, eights int)

// expEights computes whole vectors in place and the rest in one beside it, by
// the same code: an element's result does not depend on where it stands.
func expEights(dst, src []float32) {
	n := len(src) &^ 7
	if n > 0 {
		expAVX2(&dst[0], &src[0], n/8)
	}
	if n < len(src) {
		var rest [8]float32
		copy(rest[:], src[n:])
		expAVX2(&rest[0], &rest[0], 1)
		copy(dst[n:len(src)], rest[:])
	}
}
