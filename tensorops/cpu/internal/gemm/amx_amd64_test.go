package gemm_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/troupe-ml/troupe/tensorops/cpu/internal/gemm"
)

// TestAMX multiplies packed blocks at sizes on both sides of every border.
func TestAMX(t *testing.T) {
	if !gemm.HasAMX() {
		t.Skip("this processor has no AMX")
	}
	for _, m := range []int{1, 15, 31, 32, 33, 70} {
		for _, n := range []int{1, 16, 31, 32, 33, 96} {
			for _, k := range []int{1, 2, 7, 31, 32, 33, 64, 259} {
				for form := range 8 {
					r := rand.New(rand.NewPCG(uint64(m*n), uint64(k)))
					a, b, c := operand(r, m, k, form&1 != 0), operand(r, k, n, form&2 != 0), operand(r, m, n, false)
					add := form&4 != 0
					want := make([]float64, m*n)
					size := make([]float64, m*n)
					for i := range m {
						for j := range n {
							if add {
								want[i*n+j] = at(c, i, j)
							}
							for l := range k {
								p := float64(bf16(float32(at(a, i, l)))) * float64(bf16(float32(at(b, l, j))))
								want[i*n+j] += p
								size[i*n+j] += math.Abs(p)
							}
						}
					}
					pa, pb := make([]float32, gemm.AMX.LenA(m, k)), make([]float32, gemm.AMX.LenB(k, n))
					gemm.AMX.PackA(pa, a, m, k)
					gemm.AMX.PackB(pb, b, k, n)
					gemm.AMX.Block(c, m, n, k, pa, pb, add)
					for i := range want {
						if e := math.Abs(at(c, i/n, i%n) - want[i]); !(e <= 2e-6*(size[i]+math.Abs(want[i]))+1e-30) {
							t.Fatalf("%d×%d×%d, form %d: at %d, %d: %g, want %g", m, n, k, form, i/n, i%n, at(c, i/n, i%n), want[i])
						}
					}
				}
			}
		}
	}
}

// BenchmarkBlockAMX is the rate of the inner loop alone, on packed operands.
func BenchmarkBlockAMX(b *testing.B) {
	if !gemm.HasAMX() {
		b.Skip("this processor has no AMX")
	}
	const m, n, k = 192, 512, 384
	r := rand.New(rand.NewPCG(1, 1)) // zeros would take less power, and less time
	pa, pb := make([]float32, gemm.AMX.LenA(m, k)), make([]float32, gemm.AMX.LenB(k, n))
	gemm.AMX.PackA(pa, operand(r, m, k, false), m, k)
	gemm.AMX.PackB(pb, operand(r, k, n, false), k, n)
	c := gemm.Matrix{Data: make([]float32, m*n), Row: n, Col: 1}
	for b.Loop() {
		gemm.AMX.Block(c, m, n, k, pa, pb, false)
	}
	b.ReportMetric(2*float64(m*n*k)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
}
