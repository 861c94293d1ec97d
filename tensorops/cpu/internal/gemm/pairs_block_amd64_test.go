package gemm_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/troupe-ml/troupe/tensorops/cpu/internal/gemm"
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/guard"
)

// TestPairOutput: complete sums, added to those that were there or not, with a bias or not, are rounded to the numbers that
// rounding what Block stores gives, whatever rows lie between; the sums are not written.
func TestPairOutput(t *testing.T) {
	kn := pairKernel(t)
	r := rand.New(rand.NewPCG(13, 14))
	mem := guard.New(t)
	for _, s := range [][3]int{{1, 1, 1}, {12, 32, 64}, {13, 33, 3}, {11, 31, 33}, {40, 96, 70}, {29, 70, 130}} {
		for _, mode := range []struct{ add, bias bool }{{}, {add: true}, {bias: true}, {true, true}} {
			mem.Reset()
			m, n, k := s[0], s[1], s[2]
			a, b := operand(r, m, k, false), operand(r, k, n, false)
			pa, pb := mem.Floats(kn.LenA(m, k)), mem.Floats(kn.LenB(k, n))
			kn.PackA(pa, a, m, k)
			kn.PackB(pb, b, k, n)
			want := operand(r, m, n, false)
			sums := gemm.Matrix{}
			if mode.add {
				sums = gemm.Matrix{Data: mem.Floats(len(want.Data)), Row: want.Row, Col: 1}
				copy(sums.Data, want.Data)
			}
			kn.Block(want, m, n, k, pa, pb, mode.add)
			row := n + 5
			out := gemm.Output{Data: mem.Halves((m-1)*row + n), Row: row}
			for i := range out.Data {
				out.Data[i] = 0x1234
			}
			if mode.bias {
				out.Bias = mem.Floats(n)
				for j := range out.Bias {
					out.Bias[j] = special[r.IntN(len(special))] + float32(r.NormFloat64())
				}
			}
			before := slices.Clone(sums.Data)
			kn.Multiply(gemm.Block{M: m, N: n, K: k, A: kn.PackedA(pa, k), B: kn.PackedB(pb, k), C: sums, Add: mode.add, Out: out})
			for i, got := range out.Data {
				w := uint32(0x1234)
				if j := i % row; j < n {
					sum := want.Data[i/row*want.Row+j]
					if mode.bias {
						sum += out.Bias[j]
					}
					w = half(sum)
				}
				if uint32(got) != w {
					t.Fatalf("%v %+v: row %d, column %d is %#04x, want %#04x", s, mode, i/row, i%row, got, w)
				}
			}
			for i, v := range before {
				if math.Float32bits(sums.Data[i]) != math.Float32bits(v) {
					t.Fatalf("%v %+v: sum %d was %g and is %g", s, mode, i, v, sums.Data[i])
				}
			}
		}
	}
}

// TestPairNext: what is fetched meanwhile changes nothing, wherever it ends.
func TestPairNext(t *testing.T) {
	kn := pairKernel(t)
	r := rand.New(rand.NewPCG(15, 16))
	mem := guard.New(t)
	const m, n, k = 61, 70, 90
	a, b := operand(r, m, k, false), operand(r, k, n, false)
	pa, pb := make([]float32, kn.LenA(m, k)), make([]float32, kn.LenB(k, n))
	kn.PackA(pa, a, m, k)
	kn.PackB(pb, b, k, n)
	want := operand(r, m, n, false)
	before := slices.Clone(want.Data)
	kn.Block(want, m, n, k, pa, pb, false)
	for _, form := range []string{"n", "t", "x"} {
		for _, s := range [][2]int{{1, 1}, {2, 32}, {300, 17}, {31, 200}, {2000, 32}} {
			mem.Reset()
			next, _ := stored(r, mem, s[0], s[1], form)
			for _, half := range []bool{false, true} {
				from := next
				if half {
					from = halved(next)
				}
				got := gemm.Matrix{Data: slices.Clone(before), Row: want.Row, Col: 1}
				kn.Multiply(gemm.Block{M: m, N: n, K: k, A: kn.PackedA(pa, k), B: kn.PackedB(pb, k), C: got, Next: gemm.MemoryB(from, s[0], s[1])})
				for i, w := range want.Data {
					if math.Float32bits(got.Data[i]) != math.Float32bits(w) {
						t.Fatalf("form %s, %v, half %v: at %d, %d: %g, want %g", form, s, half, i/want.Row, i%want.Row, got.Data[i], w)
					}
				}
			}
		}
	}
}
