package gorgonia

import (
	"sync"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"
	G "gorgonia.org/gorgonia"

	"github.com/troupe-ml/troupe/tensorops/cpu"
)

// UseEngineBLAS makes the engine's matrix products those of Gorgonia, for float32, some
// twenty times as fast as its own. Gorgonia has one BLAS for the whole process: the first
// layer made calls this, once, before it runs. A program that sets another one afterwards
// (gorgonia.Use) gets that one, and its bits.
func UseEngineBLAS() { useOnce.Do(func() { G.Use(engineBLAS{}) }) }

var useOnce sync.Once

// engineBLAS is Gonum's BLAS but for the products of float32. What has a vector is bound by
// memory, and stays Gonum's: Sgemv, Sger, Sdot.
type engineBLAS struct{ gonum.Implementation }

// Sgemm is C = alpha·A·B + beta·C. Like Gonum's it panics where sizes don't fit.
func (engineBLAS) Sgemm(tA, tB blas.Transpose, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32,
	c []float32, ldc int) {
	if err := cpu.Gemm(tA != blas.NoTrans, tB != blas.NoTrans, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc); err != nil {
		panic(err)
	}
}
