package gemm_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
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
func multiply(kn gemm.Multiplier, ws *workspace, m, n, k int, a, b, c gemm.Matrix, add bool) {
	if k == 0 && !add {
		for i := range m {
			clear(c.Data[i*c.Row:][:n])
		}
	}
	depth := kn.Depth(k)
	for k0 := 0; k0 < k; k0 += depth {
		kk := min(depth, k-k0)
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

// halved is a matrix rounded to bfloat16.
func halved(m gemm.Matrix) gemm.Matrix {
	half := make([]uint16, len(m.Data))
	for i, f := range m.Data {
		half[i] = uint16(math.Float32bits(bf16(f)) >> 16)
	}
	return gemm.Matrix{Half: half, Row: m.Row, Col: m.Col}
}

func at(m gemm.Matrix, i, j int) float64 {
	if m.Half != nil {
		return float64(math.Float32frombits(uint32(m.Half[i*m.Row+j*m.Col]) << 16))
	}
	return float64(m.Data[i*m.Row+j*m.Col])
}

// form is one of a product: A and B transposed, added to C, A or B in bfloat16.
type form struct{ ta, tb, add, halfA, halfB bool }

// check compares one product with float64, within the error of a float32 sum.
func check(t *testing.T, name string, kn gemm.Multiplier, ws *workspace, r *rand.Rand, m, n, k int, f form) {
	t.Helper()
	_, exact := kn.(*gemm.Kernel)
	a, b, c := operand(r, m, k, f.ta), operand(r, k, n, f.tb), operand(r, m, n, false)
	if f.halfA {
		a = halved(a)
	}
	if f.halfB {
		b = halved(b)
	}
	// numbers are those that are multiplied, row by row.
	numbers := func(m gemm.Matrix, rows, cols int) []float64 {
		all := make([]float64, 0, rows*cols)
		for i := range rows {
			for j := range cols {
				f := at(m, i, j)
				if !exact {
					f = float64(bf16(float32(f)))
				}
				all = append(all, f)
			}
		}
		return all
	}
	rowsA, colsB := numbers(a, m, k), numbers(b.T(), n, k)
	want := append([]float32(nil), c.Data...)
	size := make([]float64, len(want)) // sum of magnitudes
	for i := range m {
		for j := range n {
			var sum, mag float64
			if f.add {
				sum = at(c, i, j)
			}
			mag = math.Abs(sum)
			col := colsB[j*k:][:k]
			for l, x := range rowsA[i*k:][:k] {
				p := x * col[l]
				sum += p
				mag += math.Abs(p)
			}
			want[i*c.Row+j], size[i*c.Row+j] = float32(sum), mag
		}
	}
	// Rounding errors of a sum add up like a random walk, with room. Those in
	// bfloat16 have deeper blocks.
	tolerance := 1e-6
	if !exact {
		tolerance = 2e-6
	}
	multiply(kn, ws, m, n, k, a, b, c, f.add)
	for i, w := range want {
		if d := math.Abs(float64(c.Data[i] - w)); d > tolerance*size[i]+1e-30 || d != d {
			t.Fatalf("%s m=%d n=%d k=%d %+v: at %d, %d: %g, want %g", name, m, n, k, f, i/c.Row, i%c.Row, c.Data[i], w)
		}
	}
}

// TestMultiplyAtBorders has sizes on both sides of every block's border.
func TestMultiplyAtBorders(t *testing.T) {
	for name, kn := range multipliers() {
		t.Run(name, func(t *testing.T) {
			if name == "amx" && !hasAMX() {
				t.Skip("this processor has no AMX")
			}
			mr, nr := kn.Strips()
			r := rand.New(rand.NewPCG(1, 2))
			var ws workspace
			for i, f := range []form{{}, {tb: true}, {ta: true}, {ta: true, tb: true}, {add: true}, {ta: true, add: true}, {halfA: true},
				{ta: true, tb: true, halfB: true}, {tb: true, halfA: true, halfB: true}} {
				if i > 0 && strings.HasPrefix(name, "rounded") {
					continue // packing is that of the kernel
				}
				for m := 1; m <= 2*mr+1; m++ {
					if m > mr+1 && m < 2*mr-1 {
						continue
					}
					for _, n := range []int{1, nr - 1, nr, nr + 1, 3*nr - 2} {
						for _, k := range []int{0, 1, 2, 3, 4, 7, 8, 9, 31, 35} {
							check(t, name, kn, &ws, r, m, n, k, f)
						}
					}
				}
				depth := kn.Depth(1 << 20)
				for _, s := range [][3]int{
					{gemm.BlockM - 1, 5, 9}, {gemm.BlockM + 1, 5, 9}, {3, gemm.BlockN - 1, 9}, {3, gemm.BlockN + 1, 9},
					{5, 7, depth - 1}, {5, 7, depth}, {5, 7, depth + 1}, {13, 33, 2*depth + 5},
				} {
					check(t, name, kn, &ws, r, s[0], s[1], s[2], f)
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
	f.Add(uint16(30), uint16(40), uint16(33), uint8(27), uint64(3))
	var ws workspace
	f.Fuzz(func(t *testing.T, m, n, k uint16, bits uint8, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 0))
		for name, kn := range multipliers() {
			if name == "amx" && !hasAMX() {
				continue
			}
			check(t, name, kn, &ws, r, 1+int(m)%270, 1+int(n)%600, int(k)%530,
				form{ta: bits&1 != 0, tb: bits&2 != 0, add: bits&4 != 0, halfA: bits&8 != 0, halfB: bits&16 != 0})
		}
	})
}

// fast are the multipliers that are worth measuring, by name.
func fast() map[string]gemm.Multiplier {
	all := multipliers()
	if !hasAMX() {
		delete(all, "amx")
	}
	maps.DeleteFunc(all, func(name string, _ gemm.Multiplier) bool { return strings.HasPrefix(name, "rounded") })
	return all
}

// BenchmarkMultiply packs and multiplies. The bfloat16 paths have operands in
// bfloat16 as well as in float32.
func BenchmarkMultiply(b *testing.B) {
	all := fast()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		kn := all[name]
		memories := []bool{false}
		if _, exact := kn.(*gemm.Kernel); !exact {
			memories = []bool{true, false}
		}
		for _, s := range [][3]int{{64, 64, 64}, {192, 512, 256}, {256, 768, 768}, {1024, 1024, 1024}} {
			for _, form := range []string{"nn", "nt", "tn"} {
				for _, half := range memories {
					memory := ""
					if half {
						memory = "/half"
					}
					b.Run(fmt.Sprintf("%s/%s/%dx%dx%d%s", name, form, s[0], s[1], s[2], memory), func(b *testing.B) {
						r := rand.New(rand.NewPCG(1, 1))
						var ws workspace
						x, y, c := operand(r, s[0], s[2], form == "tn"), operand(r, s[2], s[1], form == "nt"), operand(r, s[0], s[1], false)
						if half {
							x, y = halved(x), halved(y)
						}
						for b.Loop() {
							multiply(kn, &ws, s[0], s[1], s[2], x, y, c, false)
						}
						b.ReportMetric(2*float64(s[0]*s[1]*s[2]*b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
					})
				}
			}
		}
	}
}

// BenchmarkBlock is the rate of the inner loops alone, on packed operands: from the cache, and with a B and a C
// that come from memory.
func BenchmarkBlock(b *testing.B) {
	all := fast()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		kn := all[name]
		b.Run(name+"/cache", func(b *testing.B) { benchmarkBlocks(b, kn, 1) })
		b.Run(name+"/memory", func(b *testing.B) { benchmarkBlocks(b, kn, 1024) })
	}
}

// benchmarkBlocks multiplies blocks of B into blocks of C by turns.
func benchmarkBlocks(b *testing.B, kn gemm.Multiplier, blocks int) {
	const m, n = gemm.BlockM, 96
	k := kn.Depth(768)
	r := rand.New(rand.NewPCG(1, 1)) // zeros would take less power, and less time
	pa, pb := make([]float32, kn.LenA(m, k)), make([]float32, blocks*kn.LenB(k, n))
	kn.PackA(pa, operand(r, m, k, false), m, k)
	kn.PackB(pb, operand(r, k, n, false), k, n)
	for at := kn.LenB(k, n); at < len(pb); at *= 2 {
		copy(pb[at:], pb[:at])
	}
	c := gemm.Matrix{Data: make([]float32, blocks*m*n), Row: n, Col: 1}
	for i := 0; b.Loop(); i = (i + 1) % blocks {
		kn.Block(c.At(i*m, 0), m, n, k, pa, pb[i*kn.LenB(k, n):], false)
	}
	b.ReportMetric(2*float64(m*n*k)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
}
