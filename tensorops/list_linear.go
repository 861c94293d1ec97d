package tensorops

// MatMulOpts holds the options of a matrix product.
type MatMulOpts struct {
	TransA, TransB bool   // the operand is stored transposed
	Accumulate     bool   // C += instead of C =
	Bias           Tensor // [N], added to every row of C; not with Accumulate; may be bfloat16 if BF16 is set
	// BF16 rounds A and B to bfloat16 (to the nearest, ties to even), unless they already have that
	// type. Products are added in float32: mixed precision.
	BF16 bool
	// Packed is the result of Pack for B, with the same TransB and BF16, made after B was last
	// written. A device may read it instead of B. It changes no bit.
	Packed Tensor
	// Symmetric says that C is symmetric, as A·Aᵀ is, and as the square of a symmetric matrix is. A device may compute its lower half
	// alone and mirror it. It changes no bit. Not with Accumulate, Bias or Packed.
	Symmetric bool
}

// MatMul records C = op(A)·op(B), with op(A) M×K, op(B) K×N and C M×N (leading dimensions are
// flattened; views of columns are allowed). Matrices are float32, or bfloat16 if BF16 is set. B may always be
// bfloat16 or quantized: the product widens it, to exactly the numbers that Copy would store. Sums
// are float32. A bfloat16 C is rounded once, when the sum including the bias is complete; it can't
// be accumulated into. The sum over K is split into blocks whose size depends only on the device
// and on K.
func (l *List) MatMul(c, a, b Tensor, o MatMulOpts) {
	op := l.op(KindMatMul)
	MatMulArgs{c, a, b, o}.Put(op)
	m, k := a.Rows(), a.Cols()
	if o.TransA {
		m, k = k, m
	}
	kb, n := b.Rows(), b.Cols()
	if o.TransB {
		kb, n = n, kb
	}
	l.need(op, either(c, a) && (either(b) || b.Valid() && b.dtype.Quantized()) && k == kb && c.Rows() == m && c.Cols() == n,
		"A is M×K, B K×N and C M×N after transposition, in float32 or bfloat16; B may be quantized")
	l.need(op, o.BF16 || float(c, a), "an A or C of bfloat16 needs BF16")
	l.need(op, !o.Accumulate || float(c), "with Accumulate C must be float32")
	l.need(op, !o.Packed.Valid() || !b.dtype.Quantized() && dense(packedType(o.BF16), o.Packed) && o.Packed.Len() == PackedLen(k, n),
		"a packed B has PackedLen elements, of the type of the product's operands")
	l.need(op, !o.Bias.Valid() || !o.Accumulate && (dense(Float32, o.Bias) || o.BF16 && dense(BFloat16, o.Bias)) && o.Bias.Len() == n,
		"a bias has N elements, cannot be combined with Accumulate, and may be bfloat16 only with BF16")
	l.need(op, !o.Symmetric || m == n && float(c) && !o.Accumulate && !o.Bias.Valid() && !o.Packed.Valid(),
		"a symmetric C is N×N float32, without Accumulate, a bias and a packed B")
}

// MatMulArgs are the operands of KindMatMul.
type MatMulArgs struct {
	C, A, B Tensor
	MatMulOpts
}

// Put stores the operands.
func (a MatMulArgs) Put(o *Op) {
	o.operands(a.C, a.A, a.B, a.Bias, a.Packed)
	o.set(FlagTransA, a.TransA)
	o.set(FlagTransB, a.TransB)
	o.set(FlagAccumulate, a.Accumulate)
	o.set(FlagBF16, a.BF16)
	o.set(FlagSymmetric, a.Symmetric)
}

// MatMul reads the operands.
func (o *Op) MatMul() MatMulArgs {
	return MatMulArgs{C: o.T[0], A: o.T[1], B: o.T[2], MatMulOpts: MatMulOpts{
		Bias: o.T[3], Packed: o.T[4],
		TransA: o.Has(FlagTransA), TransB: o.Has(FlagTransB),
		Accumulate: o.Has(FlagAccumulate), BF16: o.Has(FlagBF16), Symmetric: o.Has(FlagSymmetric),
	}}
}

// packedType returns the type of a packed operand.
func packedType(bf16 bool) DType {
	if bf16 {
		return BFloat16
	}
	return Float32
}

// PackedLen returns the number of elements of a packed operand B of K×N: float32, or bfloat16 for
// products of bfloat16.
func PackedLen(k, n int) int {
	const align = 32
	round := func(v int) int { return (v + align - 1) / align * align }
	return round(k) * round(n)
}

// Pack records the conversion of an operand B of matrix products, stored transposed or not, into
// the order in which the device reads it. It is for weights that many microbatches use; see
// MatMulOpts.Packed. The layout of dst depends on the device.
func (l *List) Pack(dst, b Tensor, transB, bf16 bool) {
	l.pack(PackArgs{Dst: dst, B: b, TransB: transB, BF16: bf16})
}

// PackExperts is Pack for the matrices of some experts one after another, for GroupedOpts.Packed. dst has PackedLen elements for each.
func (l *List) PackExperts(dst, b Tensor, experts int, transB, bf16 bool) {
	l.pack(PackArgs{Dst: dst, B: b, TransB: transB, BF16: bf16, Experts: experts})
}

func (l *List) pack(a PackArgs) {
	op := l.op(KindPack)
	a.Put(op)
	of := max(a.Experts, 1)
	k, n := a.Size()
	l.need(op, dense(packedType(a.BF16), a.Dst) && a.Dst.Offset() == 0 && (a.BF16 && either(a.B) || float(a.B)) && a.Experts >= 0 &&
		a.B.Rows()%of == 0 && a.Dst.Len() == of*PackedLen(k, n),
		"dst has PackedLen elements for each of the experts (size 0), of the type of the product's operands, and starts at the start of "+
			"its buffer")
}

// PackArgs are the operands of KindPack.
type PackArgs struct {
	Dst, B       Tensor
	TransB, BF16 bool
	Experts      int // of PackExperts; 0: B is one matrix
}

// Size returns the depth of products with a matrix of B, and the number of its columns.
func (a PackArgs) Size() (k, n int) {
	k, n = a.B.Rows()/max(a.Experts, 1), a.B.Cols()
	if a.TransB {
		return n, k
	}
	return k, n
}

// Put stores the operands.
func (a PackArgs) Put(o *Op) {
	o.operands(a.Dst, a.B)
	o.I[0] = a.Experts
	o.set(FlagTransB, a.TransB)
	o.set(FlagBF16, a.BF16)
}

// Pack reads the operands.
func (o *Op) Pack() PackArgs {
	return PackArgs{Dst: o.T[0], B: o.T[1], TransB: o.Has(FlagTransB), BF16: o.Has(FlagBF16), Experts: o.I[0]}
}

// ColSum records sum[j] += Σ over the rows of x[·, j]: the gradient of a bias.
func (l *List) ColSum(sum, x Tensor) {
	o := l.op(KindColSum)
	ColSumArgs{sum, x}.Put(o)
	l.need(o, dense(Float32, sum) && denseEither(x) && sum.Len() == x.Cols(), "the sum has an element for each column")
}

// ColSumArgs are the operands of KindColSum.
type ColSumArgs struct{ Sum, X Tensor }

// Put stores the operands.
func (a ColSumArgs) Put(o *Op) { o.operands(a.Sum, a.X) }

// ColSum reads the operands.
func (o *Op) ColSum() ColSumArgs { return ColSumArgs{Sum: o.T[0], X: o.T[1]} }

// Add records out = a + b; out may be a or b.
func (l *List) Add(out, a, b Tensor) {
	o := l.op(KindAdd)
	AddArgs{out, a, b}.Put(o)
	l.need(o, denseEither(out, a, b) && sameLen(out, a, b), needSame)
}

// AddArgs are the operands of KindAdd.
type AddArgs struct{ Out, A, B Tensor }

// Put stores the operands.
func (a AddArgs) Put(o *Op) { o.operands(a.Out, a.A, a.B) }

// Add reads the operands.
func (o *Op) Add() AddArgs { return AddArgs{Out: o.T[0], A: o.T[1], B: o.T[2]} }

// AddScaled records y = skip + factor·x, or factor·x if skip is invalid. y may be x or skip.
func (l *List) AddScaled(y, x, skip Tensor, factor float64) {
	o := l.op(KindAddScaled)
	AddScaledArgs{y, x, skip, factor}.Put(o)
	l.need(o, denseEither(y, x) && sameLen(y, x) && optionalEither(skip, x.Len()) && finite(factor),
		"the same number of elements, and a finite factor (number 0)")
}

// AddScaledArgs are the operands of KindAddScaled.
type AddScaledArgs struct {
	Y, X, Skip Tensor // skip may be invalid
	Factor     float64
}

// Put stores the operands.
func (a AddScaledArgs) Put(o *Op) {
	o.operands(a.Y, a.X, a.Skip)
	o.F[0] = a.Factor
}

// AddScaled reads the operands.
func (o *Op) AddScaled() AddScaledArgs {
	return AddScaledArgs{Y: o.T[0], X: o.T[1], Skip: o.T[2], Factor: o.F[0]}
}
