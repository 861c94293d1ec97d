package tensorops

// MatMulOpts are the forms of a matrix product.
type MatMulOpts struct {
	TransA, TransB bool   // the operand is stored transposed
	Accumulate     bool   // C += instead of C =
	Bias           Tensor // [N], added to every row of C; not with Accumulate
	// BF16 rounds A and B to bfloat16 (to the nearest, ties to even). Products
	// are summed up in float32, and C is float32: mixed precision.
	BF16 bool
}

// MatMul records C = op(A)·op(B), with op(A) M×K, op(B) K×N and C M×N, all
// float32 matrices (leading dimensions are flattened; views of columns are
// allowed). The sum over K is split in blocks whose size depends on the device
// alone. T: C, A, B, bias.
func (l *List) MatMul(c, a, b Tensor, o MatMulOpts) {
	op := l.op(KindMatMul, c, a, b, o.Bias)
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
	l.need(op, !o.Bias.Valid() || !o.Accumulate && dense(Float32, o.Bias) && o.Bias.Len() == n, "a bias has N elements and does not go with accumulation")
}

// ColSum records sum[j] += Σ rows of x[·, j]: a bias's gradient. T: sum, x.
func (l *List) ColSum(sum, x Tensor) {
	l.need(l.op(KindColSum, sum, x), dense(Float32, sum, x) && sum.Len() == x.Cols(), "the sum has an element for each column")
}

// Add records out = a + b; out may be a or b. T: out, a, b.
func (l *List) Add(out, a, b Tensor) {
	l.need(l.op(KindAdd, out, a, b), dense(Float32, out, a, b) && sameLen(out, a, b), needSame)
}
