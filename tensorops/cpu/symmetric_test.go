package cpu_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/troupe-ml/troupe/internal/base/rng"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu"
)

// TestSymmetric: a symmetric product has the bits of the whole one, on every path, in both types and on several cores. The products
// are X·Xᵀ, Xᵀ·X, and the square of each. What lies between the rows of C is not written.
func TestSymmetric(t *testing.T) {
	for _, path := range paths() {
		for _, threads := range []int{1, 2} {
			s := open(t, threads, path).NewStream("symmetric")
			for _, size := range [][2]int{{1, 5}, {7, 3}, {33, 64}, {40, 700}, {97, 96}, {130, 260}, {300, 1100}, {513, 70}} {
				for _, bf16 := range []bool{false, true} {
					for _, tall := range []bool{false, true} {
						checkSymmetric(t, s, fmt.Sprintf("%s, %d threads, %d×%d, bf16 %v, tall %v", path, threads, size[0], size[1], bf16, tall),
							size[0], size[1], bf16, tall)
					}
				}
			}
			s.Close()
		}
	}
}

func checkSymmetric(t *testing.T, s tensorops.Stream, what string, n, k int, bf16, tall bool) {
	t.Helper()
	const gap = 3
	l := s.NewList()
	rows, cols := n, k
	if tall {
		rows, cols = k, n
	}
	numbers := make([]float32, rows*cols)
	rng.Normal(numbers, rng.NewKey(3, uint64(n)), 0, 0, 1)
	x := l.Alloc(tensorops.Float32, rows, cols)
	l.Upload(x, tensorops.HostBytes(numbers))
	var got [2][2][]float32 // whole and symmetric: the product, and its square
	for i, symmetric := range []bool{false, true} {
		c, square := l.Alloc(tensorops.Float32, n, n+gap), l.Alloc(tensorops.Float32, n, n+gap)
		l.Fill(c, 7)
		l.Fill(square, 7)
		inner := c.Columns(0, n)
		o := tensorops.MatMulOpts{TransA: tall, TransB: !tall, BF16: bf16, Symmetric: symmetric}
		l.MatMul(inner, x, x, o)
		l.MatMul(square.Columns(0, n), inner, inner, tensorops.MatMulOpts{BF16: bf16, Symmetric: symmetric})
		for j, m := range []tensorops.Tensor{c, square} {
			got[i][j] = make([]float32, m.Len())
			l.Fetch(tensorops.HostBytes(got[i][j]), m)
			l.Free(m)
		}
	}
	l.Free(x)
	if err := tensorops.Run(s, l); err != nil {
		t.Fatal(err)
	}
	for j, name := range []string{"the product", "its square"} {
		if !bytes.Equal(tensorops.HostBytes(got[0][j]), tensorops.HostBytes(got[1][j])) {
			t.Errorf("%s: %s has other bits than the whole one", what, name)
		}
	}
}

// BenchmarkSymmetric times products of which half is computed beside whole ones.
func BenchmarkSymmetric(b *testing.B) {
	for _, size := range [][2]int{{128, 512}, {512, 512}, {768, 768}, {768, 3072}} {
		for _, bf16 := range []bool{false, true} {
			for _, symmetric := range []bool{false, true} {
				b.Run(fmt.Sprintf("%d×%d, bf16 %v, symmetric %v", size[0], size[1], bf16, symmetric), func(b *testing.B) {
					dev, err := cpu.New(cpu.Options{})
					if err != nil {
						b.Fatal(err)
					}
					defer dev.Close()
					s := dev.NewStream("symmetric")
					defer s.Close()
					l := s.NewList()
					x, c := l.Alloc(tensorops.Float32, size[0], size[1]), l.Alloc(tensorops.Float32, size[0], size[0])
					l.Fill(x, 0.5)
					if err := tensorops.Run(s, l); err != nil {
						b.Fatal(err)
					}
					for b.Loop() {
						l := s.NewList()
						for range 10 {
							l.MatMul(c, x, x, tensorops.MatMulOpts{TransB: true, BF16: bf16, Symmetric: symmetric})
						}
						if err := tensorops.Run(s, l); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}
