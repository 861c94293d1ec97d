package gemm_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/troupe-ml/troupe/tensorops/cpu/internal/gemm"
)

// workspace is what a product packs into.
type workspace struct{ a, b []float32 }

func grow(buf *[]float32, n int) []float32 {
	if cap(*buf) < n {
		*buf = make([]float32, n)
	}
	return (*buf)[:n]
}

// multiply computes C = A·B, or C += A·B where add is set, block by block, with A
// m×k, B k×n and C m×n with contiguous rows.
func multiply(kn *gemm.Kernel, ws *workspace, m, n, k int, a, b, c gemm.Matrix, add bool) {
	if k == 0 && !add {
		for i := range m {
			clear(c.Data[i*c.Row:][:n])
		}
	}
	for k0 := 0; k0 < k; k0 += gemm.BlockK {
		kk := min(gemm.BlockK, k-k0)
		for j := 0; j < n; j += gemm.BlockN {
			nn := min(gemm.BlockN, n-j)
			pb := grow(&ws.b, kn.LenB(kk, nn))
			kn.PackB(pb, b.At(k0, j), kk, nn)
			for i := 0; i < m; i += gemm.BlockM {
				mm := min(gemm.BlockM, m-i)
				pa := grow(&ws.a, kn.LenA(mm, kk))
				kn.PackA(pa, a.At(i, k0), mm, kk)
				kn.Block(c.At(i, j), mm, nn, kk, pa, pb, add || k0 > 0)
			}
		}
	}
}

// operand makes a matrix of the given size in memory, stored transposed or not,
// with gaps between its rows.
func operand(r *rand.Rand, rows, cols int, transposed bool) gemm.Matrix {
	stored := cols
	if transposed {
		stored = rows
	}
	row := stored + r.IntN(3)
	m := gemm.Matrix{Data: make([]float32, row*max(rows, cols)), Row: row, Col: 1}
	for i := range m.Data {
		m.Data[i] = float32(r.NormFloat64())
	}
	if transposed {
		return m.T()
	}
	return m
}

func at(m gemm.Matrix, i, j int) float64 { return float64(m.Data[i*m.Row+j*m.Col]) }

// check compares one product with float64, within the error of a float32 sum.
func check(t *testing.T, kn *gemm.Kernel, ws *workspace, r *rand.Rand, m, n, k int, ta, tb, add bool) {
	t.Helper()
	a, b, c := operand(r, m, k, ta), operand(r, k, n, tb), operand(r, m, n, false)
	want := append([]float32(nil), c.Data...)
	size := make([]float64, len(want)) // sum of magnitudes
	for i := range m {
		for j := range n {
			var sum, mag float64
			if add {
				sum = at(c, i, j)
			}
			mag = math.Abs(sum)
			for l := range k {
				p := at(a, i, l) * at(b, l, j)
				sum += p
				mag += math.Abs(p)
			}
			want[i*c.Row+j], size[i*c.Row+j] = float32(sum), mag
		}
	}
	multiply(kn, ws, m, n, k, a, b, c, add)
	for i, w := range want {
		// Rounding errors of a sum of up to BlockK numbers add up like a random
		// walk, with room.
		if d := math.Abs(float64(c.Data[i] - w)); d > 1e-6*size[i]+1e-30 || d != d {
			t.Fatalf("%s m=%d n=%d k=%d ta=%v tb=%v add=%v: at %d, %d: %g, want %g", kn.Name, m, n, k, ta, tb, add, i/c.Row, i%c.Row, c.Data[i], w)
		}
	}
}

// TestMultiplyAtBorders has sizes on both sides of every block's border.
func TestMultiplyAtBorders(t *testing.T) {
	for _, kn := range gemm.Available() {
		t.Run(kn.Name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			var ws workspace
			for _, form := range []struct{ ta, tb, add bool }{{}, {tb: true}, {ta: true}, {ta: true, tb: true}, {add: true}, {ta: true, add: true}} {
				for m := 1; m <= 2*kn.MR+1; m++ {
					for _, n := range []int{1, kn.NR - 1, kn.NR, kn.NR + 1, 3*kn.NR - 2} {
						for _, k := range []int{0, 1, 3, 4, 7, 8, 9, 35} {
							check(t, kn, &ws, r, m, n, k, form.ta, form.tb, form.add)
						}
					}
				}
				for _, s := range [][3]int{
					{gemm.BlockM - 1, 5, 9}, {gemm.BlockM + 1, 5, 9}, {3, gemm.BlockN - 1, 9}, {3, gemm.BlockN + 1, 9},
					{5, 7, gemm.BlockK - 1}, {5, 7, gemm.BlockK}, {5, 7, gemm.BlockK + 1}, {13, 33, 2*gemm.BlockK + 5},
				} {
					check(t, kn, &ws, r, s[0], s[1], s[2], form.ta, form.tb, form.add)
				}
			}
		})
	}
}

// TestPathsAgree: the assembly paths give the same bits.
func TestPathsAgree(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var ws workspace
	for _, s := range [][3]int{{1, 1, 1}, {7, 17, 300}, {50, 70, 600}} {
		a, b := operand(r, s[0], s[2], false), operand(r, s[2], s[1], true)
		var first []float32
		for _, kn := range gemm.Available() {
			if kn.Name == "go" {
				continue
			}
			c := gemm.Matrix{Data: make([]float32, s[0]*s[1]), Row: s[1], Col: 1}
			multiply(kn, &ws, s[0], s[1], s[2], a, b, c, false)
			if first == nil {
				first = c.Data
			}
			for i := range first {
				if math.Float32bits(first[i]) != math.Float32bits(c.Data[i]) {
					t.Fatalf("%v, %s: element %d is %g, another path says %g", s, kn.Name, i, c.Data[i], first[i])
				}
			}
		}
	}
}

func FuzzMultiply(f *testing.F) {
	f.Add(uint16(5), uint16(17), uint16(260), uint8(1), uint64(1))
	f.Add(uint16(200), uint16(3), uint16(2), uint8(6), uint64(2))
	var ws workspace
	f.Fuzz(func(t *testing.T, m, n, k uint16, form uint8, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 0))
		for _, kn := range gemm.Available() {
			check(t, kn, &ws, r, 1+int(m)%270, 1+int(n)%600, int(k)%530, form&1 != 0, form&2 != 0, form&4 != 0)
		}
	})
}

func BenchmarkMultiply(b *testing.B) {
	for _, kn := range gemm.Available() {
		for _, s := range [][3]int{{64, 64, 64}, {192, 512, 256}, {256, 768, 768}, {1024, 1024, 1024}} {
			for _, form := range []string{"nn", "nt", "tn"} {
				b.Run(fmt.Sprintf("%s/%s/%dx%dx%d", kn.Name, form, s[0], s[1], s[2]), func(b *testing.B) {
					r := rand.New(rand.NewPCG(1, 1))
					var ws workspace
					x, y, c := operand(r, s[0], s[2], form == "tn"), operand(r, s[2], s[1], form == "nt"), operand(r, s[0], s[1], false)
					for b.Loop() {
						multiply(kn, &ws, s[0], s[1], s[2], x, y, c, false)
					}
					b.ReportMetric(2*float64(s[0]*s[1]*s[2]*b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
				})
			}
		}
	}
}

// BenchmarkBlock is the rate of the inner loops alone, on packed operands.
func BenchmarkBlock(b *testing.B) {
	for _, kn := range gemm.Available() {
		b.Run(kn.Name, func(b *testing.B) {
			const m, n, k = gemm.BlockM, 96, gemm.BlockK
			pa, pb := make([]float32, kn.LenA(m, k)), make([]float32, kn.LenB(k, n))
			c := gemm.Matrix{Data: make([]float32, m*n), Row: n, Col: 1}
			for b.Loop() {
				kn.Block(c, m, n, k, pa, pb, false)
			}
			b.ReportMetric(2*float64(m*n*k)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
		})
	}
}
