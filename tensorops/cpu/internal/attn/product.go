package attn

import "github.com/troupe-ml/troupe/tensorops/cpu/internal/gemm"

// product is a multiplication by blocks as Forward and Backward use it: of float32, or of
// bfloat16 (see gemm.Kernel, gemm.PairKernel and gemm.TileKernel, whose methods have the same names). C is
// float32.
type product interface {
	Strips() (mr, nr int)
	LenA(m, k int) int
	LenB(k, n int) int
	PackA(dst []float32, a gemm.Matrix, m, k int)
	PackB(dst []float32, b gemm.Matrix, k, n int)
	// StripA packs a strip of A from rows that are contiguous along k.
	StripA(dst, src []float32, stride, depth, rows int)
	// InPlace makes a strip of B of what Part has stored in a C of NR columns, depth rows; the memory
	// has room for a strip of B of that depth.
	InPlace(c []float32, depth int)
	PackedA(data []float32, depth int) gemm.Operand
	PackedB(data []float32, depth int) gemm.Operand
	// From is an operand from k on, in whole strips of A.
	From(o gemm.Operand, k int) gemm.Operand
	Part(c gemm.Matrix, m, n, k int, a, b gemm.Operand, add bool)
	Block(c gemm.Matrix, m, n, k int, a, b []float32, add bool)
}

// multiplier is how the path multiplies.
func (kn *Kernel) multiplier() product {
	if kn.bf16 != nil {
		return kn.bf16
	}
	return floats{kn.Gemm}
}

// floats multiplies float32. What a tile stores is packed already.
type floats struct{ *gemm.Kernel }

func (floats) InPlace([]float32, int)                  {}
func (floats) From(o gemm.Operand, k int) gemm.Operand { return o.From(k) }

// pairs multiplies bfloat16, in words of two k: an MR of even rows keeps From between words.
type pairs struct{ *gemm.PairKernel }

func (p pairs) InPlace(c []float32, depth int)        { p.StripB(c, c, depth) }
func (pairs) From(o gemm.Operand, k int) gemm.Operand { return o.From(k / 2) }
