package gemm

// Multiplier is one way to multiply matrices on a core: a Kernel in float32, or
// one in which the operands are rounded to bfloat16 (to the nearest, ties to even)
// as they are packed, and products are summed up in float32.
type Multiplier interface {
	// Depth is the depth of the blocks into which a product of depth k is cut; the
	// last one is as deep as what is left.
	Depth(k int) int
	// LenA and LenB are the number of floats that packed blocks take: m rows of
	// A, or n columns of B, of depth k. They are linear in whole strips, and in
	// whole blocks of a product.
	LenA(m, k int) int
	LenB(k, n int) int
	PackA(dst []float32, a Matrix, m, k int)
	PackB(dst []float32, b Matrix, k, n int)
	// Block computes C = A·B, or C += A·B where add is set, from packed blocks
	// of depth k. C's rows are contiguous.
	Block(c Matrix, m, n, k int, a, b []float32, add bool)
	// Strips are the rows of A and the columns of B in one strip.
	Strips() (mr, nr int)
}

// Depth is BlockK, whatever the product.
func (kn *Kernel) Depth(int) int { return BlockK }

// Strips are MR and NR.
func (kn *Kernel) Strips() (mr, nr int) { return kn.MR, kn.NR }

// Fetches reports whether Multiply fetches what is next.
func (kn *Kernel) Fetches() bool { return kn.fetches }

// rounded multiplies numbers that bfloat16 can hold by a float32 kernel. A product
// of two of them is exact in float32.
type rounded struct {
	*Kernel
	round func(dst, src []float32)
}

// Rounded is the kernel with its operands rounded to bfloat16 by a function, for
// processors that cannot multiply bfloat16: it has the numbers of bfloat16 and the
// speed of float32.
func Rounded(kn *Kernel, round func(dst, src []float32)) Multiplier { return rounded{kn, round} }

func (r rounded) PackA(dst []float32, a Matrix, m, k int) {
	r.Kernel.PackA(dst, a, m, k)
	if a.Half != nil {
		return
	}
	dst = dst[:r.LenA(m, k)]
	r.round(dst, dst)
}

func (r rounded) PackB(dst []float32, b Matrix, k, n int) {
	r.Kernel.PackB(dst, b, k, n)
	if b.Half != nil { // these have few bits already
		return
	}
	dst = dst[:r.LenB(k, n)]
	r.round(dst, dst)
}
