//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"slices"
	"testing"

	"github.com/troupe-ml/troupe/internal/base/rng"
	"github.com/troupe-ml/troupe/tensorops"
)

// TestProductBits: a row of a product has the same bits among few rows as among many, which
// are cut in larger tiles, or have the pieces of the depth not computed apart.
func TestProductBits(t *testing.T) {
	const m, n = 200, 100
	_, path := stand(t)
	s := newDevice(t, path, Options{}).NewStream("products")
	multiplied := func(rows, k int, bf16 bool) []float32 {
		a, b := make([]float32, rows*k), make([]float32, k*n)
		rng.Normal(a, rng.NewKey(1, 1), 0, 0, 1)
		rng.Normal(b, rng.NewKey(1, 2), 0, 0, 1)
		l := s.NewList()
		x, y, c := l.Alloc(tensorops.Float32, rows, k), l.Alloc(tensorops.Float32, k, n), l.Alloc(tensorops.Float32, rows, n)
		l.Upload(x, tensorops.HostBytes(a))
		l.Upload(y, tensorops.HostBytes(b))
		l.MatMul(c, x, y, tensorops.MatMulOpts{BF16: bf16})
		got := make([]float32, rows*n)
		l.Fetch(tensorops.HostBytes(got), c)
		for _, of := range []tensorops.Tensor{x, y, c} {
			l.Free(of)
		}
		if err := tensorops.Run(s, l); err != nil {
			t.Fatal(err)
		}
		return got
	}
	for _, bf16 := range []bool{false, true} {
		for _, k := range []int{300, 600} {
			all := multiplied(m, k, bf16)
			for _, rows := range []int{1, 70} {
				if got := multiplied(rows, k, bf16); !slices.Equal(got, all[:rows*n]) {
					t.Errorf("depth %d, bfloat16 %v: %d rows differ from the same among %d", k, bf16, rows, m)
				}
			}
		}
	}
}
