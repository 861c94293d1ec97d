package attn_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/troupe-ml/troupe/tensorops/cpu/internal/attn"
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/gemm"
)

// TestProducts: rows' dot products are those of dot, to the bit, and nothing beside them is written.
func TestProducts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, kn := range available() {
		for _, d := range []int{1, 3, 4, 6, 64, 96, 128} {
			for _, rows := range []int{0, 1, 5} {
				t.Run(fmt.Sprintf("%s/%d×%d", kn.Name, rows, d), func(t *testing.T) {
					a, b := numbers(r, rows, d, d+3), numbers(r, rows, d, 2*d)
					got := []float32{7, 7, 7, 7, 7, 7}
					kn.Products(got[:rows], a, b, d, make([]float32, 2*d))
					for i, v := range got {
						want := float32(7)
						if i < rows {
							want = attn.Dot(a.Data[i*a.Row:][:d], b.Data[i*b.Row:][:d])
						}
						if math.Float32bits(v) != math.Float32bits(want) {
							t.Errorf("row %d: %g, want %g", i, v, want)
						}
					}
				})
			}
		}
	}
}

func numbers(r *rand.Rand, rows, d, stride int) gemm.Matrix {
	m := gemm.Matrix{Data: make([]float32, max(0, rows-1)*stride+d), Row: stride, Col: 1}
	for i := range m.Data {
		m.Data[i] = float32(r.NormFloat64()) * float32(math.Exp(r.NormFloat64()*5))
	}
	return m
}
