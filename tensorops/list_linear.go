package tensorops

// MatMulOpts are the forms of a matrix product.
type MatMulOpts struct {
	TransA, TransB bool   // the operand is stored transposed
	Accumulate     bool   // C += instead of C =
	Bias           Tensor // [N], added to every row of C; not with Accumulate
	// BF16 rounds A and B to bfloat16 (to the nearest, ties to even). Products
	// are summed up in float32, and C is float32: mixed precision.
	BF16 bool
	// Packed is what Pack made of B, with the same TransB and BF16, since B was
	// last written: a device may read it instead of B. It changes no bit.
	Packed Tensor
}

// MatMul records C = op(A)·op(B), with op(A) M×K, op(B) K×N and C M×N, all
// float32 matrices (leading dimensions are flattened; views of columns are
// allowed). The sum over K is split in blocks whose size depends on the device
// alone. T: C, A, B, bias, packed.
func (l *List) MatMul(c, a, b Tensor, o MatMulOpts) {
	op := l.op(KindMatMul, c, a, b, o.Bias, o.Packed)
	op.set(FlagTransA, o.TransA)
	op.set(FlagTransB, o.TransB)
	op.set(FlagAccumulate, o.Accumulate)
	op.set(FlagBF16, o.BF16)
	m, k := a.Rows(), a.Cols()
	if o.TransA {
		m, k = k, m
	}
	kb, n := b.Rows(), b.Cols()
	if o.TransB {
		kb, n = n, kb
	}
	l.need(op, float(c, a, b) && k == kb && c.Rows() == m && c.Cols() == n, "A is M×K, B K×N and C M×N after transposition, in float32")
	l.need(op, !o.Packed.Valid() || dense(Float32, o.Packed) && o.Packed.Len() == PackedLen(k, n), "a packed B has PackedLen elements")
	l.need(op, !o.Bias.Valid() || !o.Accumulate && dense(Float32, o.Bias) && o.Bias.Len() == n, "a bias has N elements and does not go with accumulation")
}

// PackedLen is the length of what Pack makes of an operand B of K×N, in float32:
// enough for every device, of which some use half for bfloat16.
func PackedLen(k, n int) int {
	const align = 32
	round := func(v int) int { return (v + align - 1) / align * align }
	return round(k) * round(n)
}

// Pack records that an operand B of matrix products, stored transposed or not, is
// brought into the order in which the device reads it, for weights that many
// microbatches multiply by: see MatMulOpts.Packed. What dst holds is the device's
// own affair. T: dst, B.
func (l *List) Pack(dst, b Tensor, transB, bf16 bool) {
	op := l.op(KindPack, dst, b)
	op.set(FlagTransB, transB)
	op.set(FlagBF16, bf16)
	k, n := b.Rows(), b.Cols()
	if transB {
		k, n = n, k
	}
	l.need(op, dense(Float32, dst) && dst.Offset() == 0 && float(b) && dst.Len() == PackedLen(k, n), "dst has PackedLen elements and begins its buffer")
}

// ColSum records sum[j] += Σ rows of x[·, j]: a bias's gradient. T: sum, x.
func (l *List) ColSum(sum, x Tensor) {
	l.need(l.op(KindColSum, sum, x), dense(Float32, sum, x) && sum.Len() == x.Cols(), "the sum has an element for each column")
}

// Add records out = a + b; out may be a or b. T: out, a, b.
func (l *List) Add(out, a, b Tensor) {
	l.need(l.op(KindAdd, out, a, b), dense(Float32, out, a, b) && sameLen(out, a, b), needSame)
}
