package gemm_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/troupe-ml/troupe/tensorops/cpu/internal/gemm"
)

// TestBlockRows: an A that is read where it lies gives the bits of one that is packed, also as part of a wider matrix
// and where C ends within a strip of columns.
func TestBlockRows(t *testing.T) {
	if !hasAMX() {
		t.Skip("this processor has no AMX")
	}
	r := rand.New(rand.NewPCG(1, 2))
	half := func(n int) []uint16 {
		v := make([]uint16, n)
		for i := range v { // ±1 to 4
			v[i] = uint16(r.UintN(2)<<15 | 0x3f80 | r.UintN(0x100))
		}
		return v
	}
	for _, c := range []struct{ m, n, k, wider int }{{32, 32, 32, 0}, {96, 64, 96, 0}, {64, 33, 512, 0}, {32, 7, 64, 5},
		{128, 160, 384, 384}} {
		for _, add := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v,%v", c, add), func(t *testing.T) {
				a := gemm.Matrix{Half: half(c.m * (c.k + c.wider)), Row: c.k + c.wider, Col: 1}
				b := gemm.Matrix{Half: half(c.k * c.n), Row: c.n, Col: 1}
				if !gemm.AMX.ReadsRows(a, c.m, c.k) {
					t.Fatal("refused")
				}
				packedA, packedB := make([]float32, gemm.AMX.LenA(c.m, c.k)), make([]float32, gemm.AMX.LenB(c.k, c.n))
				gemm.AMX.PackA(packedA, a, c.m, c.k)
				gemm.AMX.PackB(packedB, b, c.k, c.n)
				want := make([]float32, c.m*c.n)
				for i := range want {
					want[i] = r.Float32()
				}
				got := slices.Clone(want)
				gemm.AMX.Block(gemm.Matrix{Data: want, Row: c.n, Col: 1}, c.m, c.n, c.k, packedA, packedB, add)
				gemm.AMX.BlockRows(gemm.Matrix{Data: got, Row: c.n, Col: 1}, c.m, c.n, c.k, a, packedB, add)
				if !slices.Equal(got, want) {
					t.Error("other numbers")
				}
			})
		}
	}
	whole := gemm.Matrix{Half: half(64 * 64), Row: 64, Col: 1}
	for _, c := range []struct {
		a    gemm.Matrix
		m, k int
	}{{whole, 31, 64}, {whole, 64, 63}, {whole.T(), 64, 64}, {gemm.Matrix{Data: make([]float32, 64*64), Row: 64, Col: 1}, 64, 64}} {
		if gemm.AMX.ReadsRows(c.a, c.m, c.k) {
			t.Errorf("takes %d × %d of columns, of float32 or beside whole tiles", c.m, c.k)
		}
	}
}
