package gorgonia

import (
	"sync"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"
	G "gorgonia.org/gorgonia"

	"github.com/troupe-ml/troupe/tensorops/cpu"
)

// UseEngineBLAS makes Gorgonia use the engine's matrix products for float32, which are about twenty
// times as fast as its own. Gorgonia has one BLAS for the whole process. The first layer that is
// made calls this function once, before it runs. If a program sets another BLAS afterwards
// (gorgonia.Use), Gorgonia uses that one, with its bits.
func UseEngineBLAS() { useOnce.Do(func() { G.Use(engineBLAS{}) }) }

var useOnce sync.Once

// engineBLAS is Gonum's BLAS with the engine's matrix products for float32. Operations with a
// vector are limited by memory bandwidth and stay Gonum's: Sgemv, Sger, Sdot.
type engineBLAS struct{ gonum.Implementation }

// Sgemm computes C = alpha·A·B + beta·C. Like Gonum's it panics if the sizes don't fit.
func (engineBLAS) Sgemm(tA, tB blas.Transpose, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32,
	c []float32, ldc int) {
	if err := cpu.Gemm(tA != blas.NoTrans, tB != blas.NoTrans, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc); err != nil {
		panic(err)
	}
}
