package cpu

import (
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/troupe-ml/troupe/tensorops"
)

// gemmCase is one product with its operands.
type gemmCase struct {
	ta, tb        bool
	m, n, k       int
	alpha, beta   float32
	a, b, c       []float32
	lda, ldb, ldc int
}

func newGemmCase(r *rand.Rand, ta, tb bool, m, n, k int, alpha, beta float32) gemmCase {
	g := gemmCase{ta: ta, tb: tb, m: m, n: n, k: k, alpha: alpha, beta: beta}
	matrix := func(rows, cols int, transposed bool) ([]float32, int) {
		if transposed {
			rows, cols = cols, rows
		}
		ld := max(1, cols) + r.IntN(3)
		data := make([]float32, max(0, (rows-1)*ld+cols))
		for i := range data {
			data[i] = float32(r.NormFloat64())
		}
		return data, ld
	}
	g.a, g.lda = matrix(m, k, ta)
	g.b, g.ldb = matrix(k, n, tb)
	g.c, g.ldc = matrix(m, n, false)
	return g
}

func at(data []float32, ld, i, j int, transposed bool) float64 {
	if transposed {
		i, j = j, i
	}
	return float64(data[i*ld+j])
}

// check compares with float64, within the error of a float32 sum, and looks at what lies
// between the rows of C.
func (g gemmCase) check(t *testing.T, path *kernels) {
	t.Helper()
	c := append([]float32(nil), g.c...)
	if err := gemmOn(path.gemm, g.ta, g.tb, g.m, g.n, g.k, g.alpha, g.a, g.lda, g.b, g.ldb, g.beta, c, g.ldc); err != nil {
		t.Fatal(err)
	}
	for i := range c {
		row, col := i/g.ldc, i%g.ldc
		if col >= g.n {
			if c[i] != g.c[i] {
				t.Fatalf("%s: the gap after row %d was written", path.name, row)
			}
			continue
		}
		want := float64(g.beta) * float64(g.c[i])
		size := math.Abs(want)
		for l := range g.k {
			p := float64(g.alpha) * at(g.a, g.lda, row, l, g.ta) * at(g.b, g.ldb, l, col, g.tb)
			want += p
			size += math.Abs(p)
		}
		if d := math.Abs(float64(c[i]) - want); d > 1e-6*size || math.IsNaN(d) {
			t.Fatalf("%s, %d×%d×%d, transposed %v %v, alpha %g, beta %g: element %d, %d is %g, want %g",
				path.name, g.m, g.n, g.k, g.ta, g.tb, g.alpha, g.beta, row, col, c[i], want)
		}
	}
}

// TestGemm compares every path with float64.
func TestGemm(t *testing.T) {
	for _, path := range available() {
		t.Run(path.name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			for _, size := range [][3]int{{1, 1, 1}, {0, 3, 4}, {3, 0, 4}, {3, 4, 0}, {5, 33, 17}, {64, 64, 64}, {13, 96, 300}, {130, 40, 257},
				{200, 513, 40}} {
				for _, f := range []struct {
					ta, tb      bool
					alpha, beta float32
				}{{false, false, 1, 0}, {true, false, 1, 1}, {false, true, 1, 0}, {true, true, 1, 1}, {false, true, 0.5, 2}, {true, false, -1, 0},
					{false, false, 0, 0.5}} {
					newGemmCase(r, f.ta, f.tb, size[0], size[1], size[2], f.alpha, f.beta).check(t, path)
				}
			}
		})
	}
}

// TestGemmIsTheDevices: the bits are those of MatMul on a device of any number of cores.
func TestGemmIsTheDevices(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, size := range [][3]int{{64, 64, 64}, {64, 256, 512}, {300, 128, 700}} {
		g := newGemmCase(r, false, true, size[0], size[1], size[2], 1, 0)
		want := deviceProduct(t, g)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				c := append([]float32(nil), g.c...)
				if err := Gemm(g.ta, g.tb, g.m, g.n, g.k, 1, g.a, g.lda, g.b, g.ldb, 0, c, g.ldc); err != nil {
					t.Error(err)
				}
				for i := range g.m {
					for j := range g.n {
						if c[i*g.ldc+j] != want[i*g.n+j] {
							t.Errorf("%v: element %d, %d is %g, on a device %g", size, i, j, c[i*g.ldc+j], want[i*g.n+j])
							return
						}
					}
				}
			})
		}
		wg.Wait()
	}
}

// deviceProduct computes a case by MatMul.
func deviceProduct(t *testing.T, g gemmCase) []float32 {
	t.Helper()
	kn := available()[0]
	d, err := New(Options{Threads: 2, Kernels: kn.name})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	s := d.NewStream("test")
	list := s.NewList()
	a, b := list.Alloc(tensorops.Float32, g.m, g.k), list.Alloc(tensorops.Float32, g.n, g.k)
	c := list.Alloc(tensorops.Float32, g.m, g.n)
	list.Call(tensorops.Call{Name: "fill", Writes: []tensorops.Tensor{a, b}, Func: func(_, writes []tensorops.Array) error {
		for i := range g.m {
			copy(writes[0].Float[i*g.k:], g.a[i*g.lda:][:g.k])
		}
		for i := range g.n {
			copy(writes[1].Float[i*g.k:], g.b[i*g.ldb:][:g.k])
		}
		return nil
	}})
	list.MatMul(c, a, b, tensorops.MatMulOpts{TransB: true})
	var out []float32
	list.Call(tensorops.Call{Name: "read", Reads: []tensorops.Tensor{c}, Func: func(reads, _ []tensorops.Array) error {
		out = append(out, reads[0].Float...)
		return nil
	}})
	done := make(chan error, 1)
	s.Submit(list, func(err error) { done <- err })
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return out
}

// TestGemmRefuses: what does not fit is an error, and C stays as it was.
func TestGemmRefuses(t *testing.T) {
	a, b, c := make([]float32, 6), make([]float32, 12), make([]float32, 8)
	for name, err := range map[string]error{
		"negative":  Gemm(false, false, -1, 4, 3, 1, a, 3, b, 4, 0, c, 4),
		"short A":   Gemm(false, false, 2, 4, 3, 1, a[:5], 3, b, 4, 0, c, 4),
		"short B":   Gemm(false, false, 2, 4, 3, 1, a, 3, b[:11], 4, 0, c, 4),
		"short C":   Gemm(false, false, 2, 4, 3, 1, a, 3, b, 4, 0, c[:7], 4),
		"close A":   Gemm(false, false, 2, 4, 3, 1, a, 2, b, 4, 0, c, 4),
		"overflow":  Gemm(false, false, math.MaxInt/2, 4, 3, 1, a, 3, b, 4, 0, c, 4),
		"huge rows": Gemm(false, false, 2, 4, 3, 1, a, math.MaxInt, b, 4, 0, c, 4),
	} {
		if !errors.Is(err, tensorops.ErrShape) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
