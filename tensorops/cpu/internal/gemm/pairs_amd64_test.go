package gemm_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"golang.org/x/sys/cpu"

	"github.com/troupe-ml/troupe/tensorops/cpu/internal/gemm"
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/guard"
)

func pairKernel(t *testing.T) *gemm.PairKernel {
	if !cpu.X86.HasAVX512BF16 {
		t.Skip("this processor has no AVX-512 BF16")
	}
	return &gemm.AVX512BF16
}

// special are numbers whose rounding is not that of most.
var special = []float32{0, float32(math.Copysign(0, -1)), 1e-39, -1e-40, math.Float32frombits(0x00800000),
	math.Float32frombits(0x3f808000), math.Float32frombits(0x3f818000), math.MaxFloat32, float32(math.Inf(-1)),
	float32(math.NaN()), math.Float32frombits(0x7f800001), math.Float32frombits(0xffc00001)}

// half is a number as it is packed.
func half(f float32) uint32 {
	b := math.Float32bits(f)
	switch {
	case f != f:
		return b>>16 | 0x40
	case b>>23&0xff == 0:
		return b >> 16 & 0x8000
	}
	return math.Float32bits(bf16(f)) >> 16
}

// TestPairWords: whatever the form, the words are the rounded numbers of two k, and an
// odd depth ends with zeros.
func TestPairWords(t *testing.T) {
	kn := pairKernel(t)
	r := rand.New(rand.NewPCG(5, 6))
	mem := guard.New(t)
	for _, form := range []string{"n", "t", "x"} {
		for _, width := range []int{1, 7, 11, 12, 13, 16, 17, 31, 32, 33, 70} {
			for _, k := range []int{1, 2, 5, 31, 32, 33, 63, 100} {
				mem.Reset()
				m, _ := stored(r, mem, k, width, form)
				for range 1 + k*width/4 {
					m.Data[r.IntN(k)*m.Row+r.IntN(width)*m.Col] = special[r.IntN(len(special))]
				}
				for _, strip := range []int{kn.MR, kn.NR} {
					var dst []float32
					if strip == kn.MR {
						dst = mem.Floats(kn.LenA(width, k))
						kn.PackA(dst, m.T(), width, k)
					} else {
						dst = mem.Floats(kn.LenB(k, width))
						kn.PackB(dst, m, k, width)
					}
					for j := range width {
						for l := 0; l < k; l += 2 {
							want := half(m.Data[l*m.Row+j*m.Col])
							if l+1 < k {
								want |= half(m.Data[(l+1)*m.Row+j*m.Col]) << 16
							}
							at := j/strip*strip*((k+1)/2) + l/2*strip + j%strip
							if got := math.Float32bits(dst[at]); got != want {
								t.Fatalf("form %s, width %d, depth %d, strips of %d: element %d, k %d: %#08x, want %#08x", form, width, k, strip, j, l, got, want)
							}
						}
					}
				}
			}
		}
	}
}

// TestPairStrips: a C of NR columns is packed as the next product's B in place, and rows
// of it as its A.
func TestPairStrips(t *testing.T) {
	kn := pairKernel(t)
	r := rand.New(rand.NewPCG(7, 8))
	for _, k := range []int{1, 2, 11, 24, 77} {
		m := gemm.Matrix{Data: make([]float32, k*kn.NR), Row: kn.NR, Col: 1}
		for i := range m.Data {
			m.Data[i] = float32(r.NormFloat64())
		}
		want, got := make([]float32, kn.LenB(k, kn.NR)), slices.Clone(m.Data)
		kn.PackB(want, m, k, kn.NR)
		kn.StripB(got, got, k)
		for i, w := range want {
			if math.Float32bits(got[i]) != math.Float32bits(w) {
				t.Fatalf("StripB, depth %d: word %d is %#08x, want %#08x", k, i, math.Float32bits(got[i]), math.Float32bits(w))
			}
		}
		rows := min(k, kn.MR)
		want, got = make([]float32, kn.LenA(rows, kn.NR)), make([]float32, kn.LenA(rows, kn.NR))
		kn.PackA(want, m, rows, kn.NR)
		kn.StripA(got, m.Data, kn.NR, kn.NR, rows)
		for i, w := range want {
			if math.Float32bits(got[i]) != math.Float32bits(w) {
				t.Fatalf("StripA of %d rows: word %d is %#08x, want %#08x", rows, i, math.Float32bits(got[i]), math.Float32bits(w))
			}
		}
	}
}

// TestPairPart: the first k of deeper operands, from some pair on, give the bits of
// operands of that depth.
func TestPairPart(t *testing.T) {
	kn := pairKernel(t)
	r := rand.New(rand.NewPCG(9, 10))
	const m, n, depth, from, k = 30, 70, 90, 12, 46
	a, b := operand(r, m, depth, false), operand(r, depth, n, false)
	pa, pb := make([]float32, kn.LenA(m, depth)), make([]float32, kn.LenB(depth, n))
	kn.PackA(pa, a, m, depth)
	kn.PackB(pb, b, depth, n)
	got := operand(r, m, n, false)
	want := gemm.Matrix{Data: slices.Clone(got.Data), Row: got.Row, Col: 1}
	kn.Part(got, m, n, k, kn.PackedA(pa, depth).From(from/2), kn.PackedB(pb, depth).From(from/2), true)
	pa, pb = make([]float32, kn.LenA(m, k)), make([]float32, kn.LenB(k, n))
	kn.PackA(pa, a.At(0, from), m, k)
	kn.PackB(pb, b.At(from, 0), k, n)
	kn.Block(want, m, n, k, pa, pb, true)
	for i, w := range want.Data {
		if math.Float32bits(got.Data[i]) != math.Float32bits(w) {
			t.Fatalf("at %d, %d: %g, want %g", i/got.Row, i%got.Row, got.Data[i], w)
		}
	}
}

// TestPairBorders: what lies past an operand, in a strip or in memory, reaches no
// element, be it a NaN, and C is written nowhere else.
func TestPairBorders(t *testing.T) {
	kn := pairKernel(t)
	r := rand.New(rand.NewPCG(11, 12))
	mem := guard.New(t)
	nan := float32(math.NaN())
	for _, form := range []string{"n", "t", "x"} {
		for _, s := range [][3]int{{1, 1, 1}, {13, 33, 3}, {11, 31, 33}, {25, 40, 65}} {
			mem.Reset()
			m, n, k := s[0], s[1], s[2]
			a, _ := stored(r, mem, m, k, form)
			_, b := stored(r, mem, k, n, form)
			pa, pb := mem.Floats(kn.LenA(m, k)), mem.Floats(kn.LenB(k, n))
			row := n + 3
			c := gemm.Matrix{Data: mem.Floats((m-1)*row + n), Row: row, Col: 1}
			for _, piece := range [][]float32{pa, pb, c.Data} {
				for i := range piece {
					piece[i] = nan
				}
			}
			kn.PackA(pa, a, m, k)
			kn.PackB(pb, b, k, n)
			kn.Block(c, m, n, k, pa, pb, false)
			for i, got := range c.Data {
				if outside := i%row >= n; outside != (got != got) {
					t.Fatalf("form %s, %v: at %d, %d: %g", form, s, i/row, i%row, got)
				}
			}
		}
	}
}
