package gemm_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/troupe-ml/troupe/tensorops/cpu/internal/gemm"
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/guard"
)

// TestDirect: operands that the tiles read where they lie, at the end of readable memory, give
// the bits of packed ones.
func TestDirect(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	mem := guard.New(t)
	guarded := func(rows, cols int, transposed bool) gemm.Matrix {
		m := gemm.Matrix{Data: mem.Floats(rows * cols), Row: cols, Col: 1}
		for i := range m.Data {
			m.Data[i] = float32(r.NormFloat64())
		}
		if transposed {
			m.Row, m.Col = 1, rows
		}
		return m
	}
	for _, kn := range gemm.Available() {
		for m := 1; m <= 2*kn.MR+1; m++ {
			for _, n := range []int{kn.NR, 3 * kn.NR} {
				for _, k := range []int{1, 3, 4, 9, gemm.BlockK, gemm.BlockK + 5} {
					for _, transposed := range []bool{false, true} {
						mem.Reset()
						a, b, c := guarded(m, k, transposed), guarded(k, n, false), guarded(m, n, false)
						want := gemm.Matrix{Data: make([]float32, m*n), Row: n, Col: 1}
						multiply(kn, new(workspace), m, n, k, a, b, want, false)
						if !kn.Direct(c, a, b, m, n, k, false, mem.Floats) {
							if kn != &gemm.Go {
								t.Fatalf("%s: %d×%d×%d was not multiplied in place", kn.Name, m, n, k)
							}
							continue
						}
						for i, v := range want.Data {
							if math.Float32bits(c.Data[i]) != math.Float32bits(v) {
								t.Fatalf("%s: %d×%d×%d, transposed %v: element %d is %g, packed %g", kn.Name, m, n, k, transposed, i, c.Data[i], v)
							}
						}
					}
				}
			}
		}
	}
}
