package tensorops

// ConvOpts holds the sizes of a causal convolution.
type ConvOpts struct {
	Batch int // B sequences
	// Starts, an int32 for each row of x, is where the row's document starts: row t reads no row of its
	// sequence before Starts[t], but always itself. Invalid: all start before the first row.
	Starts Tensor
}

// CausalConv records y = SiLU(the causal depthwise convolution of x): for each channel c of each
// sequence, y[t] = SiLU(Σ weight[c, k]·x[t−K+1+k]) over the K taps. x and y are B·T rows of C channels,
// and weight is [C, K]. Sequences do not see each other.
//
// Rows before the first one are 0, or those of state, which may be invalid: [B, K−1, C], the oldest row
// of a sequence first. The operation then stores the last K−1 rows there, for the rows that follow.
func (l *List) CausalConv(y, x, weight, state Tensor, c ConvOpts) {
	o := l.op(KindCausalConv)
	a := CausalConvArgs{y, x, weight, state, c}
	a.Put(o)
	l.need(o, either(y, x, weight) && dense(Float32, weight) && y.Contiguous() && sameMatrix(y, x) && c.fit(x, weight) &&
		optionalEither(state, c.Batch*(weight.Cols()-1)*x.Cols()), needConv)
}

// CausalConvArgs are the operands of KindCausalConv.
type CausalConvArgs struct {
	Y, X, Weight, State Tensor // state may be invalid
	ConvOpts
}

// Put stores the operands.
func (a CausalConvArgs) Put(o *Op) {
	o.operands(a.Y, a.X, a.Weight, a.State, a.Starts)
	o.I[0] = a.Batch
}

// CausalConv reads the operands.
func (o *Op) CausalConv() CausalConvArgs {
	return CausalConvArgs{Y: o.T[0], X: o.T[1], Weight: o.T[2], State: o.T[3], ConvOpts: ConvOpts{Batch: o.I[0], Starts: o.T[4]}}
}

// CausalConvGrad records the gradient of CausalConv's input, for sequences without a state:
//
//	s[t]  = Σ weight[c, k]·x[t−K+1+k], computed again
//	ds[t] = dy[t]·SiLU′(s[t])
//	dx[t] = Σ weight[c, k]·ds[t+K−1−k] over the taps k with t+K−1−k < T
//
// dx may not be dy or x.
func (l *List) CausalConvGrad(dx, dy, x, weight Tensor, c ConvOpts) {
	o := l.op(KindCausalConvGrad)
	CausalConvGradArgs{dx, dy, x, weight, c}.Put(o)
	l.need(o, either(dx, dy, x) && dense(Float32, weight) && dy.Contiguous() && sameMatrix(dx, x) && sameMatrix(dy, x) && c.fit(x, weight),
		needConv)
}

// CausalConvGradArgs are the operands of KindCausalConvGrad.
type CausalConvGradArgs struct {
	DX, DY, X, Weight Tensor
	ConvOpts
}

// Put stores the operands.
func (a CausalConvGradArgs) Put(o *Op) {
	o.operands(a.DX, a.DY, a.X, a.Weight, a.Starts)
	o.I[0] = a.Batch
}

// CausalConvGrad reads the operands.
func (o *Op) CausalConvGrad() CausalConvGradArgs {
	return CausalConvGradArgs{DX: o.T[0], DY: o.T[1], X: o.T[2], Weight: o.T[3], ConvOpts: ConvOpts{Batch: o.I[0], Starts: o.T[4]}}
}

// CausalConvWeightGrad records dweight[c, k] += Σ ds[t]·x[t−K+1+k] over the rows of all sequences, with ds
// as in CausalConvGrad.
func (l *List) CausalConvWeightGrad(dweight, dy, x, weight Tensor, c ConvOpts) {
	o := l.op(KindCausalConvWeightGrad)
	CausalConvWeightGradArgs{dweight, dy, x, weight, c}.Put(o)
	l.need(o, either(dy, x) && dense(Float32, dweight, weight) && dy.Contiguous() && sameMatrix(dy, x) && sameMatrix(dweight, weight) &&
		c.fit(x, weight), needConv)
}

// CausalConvWeightGradArgs are the operands of KindCausalConvWeightGrad.
type CausalConvWeightGradArgs struct {
	DWeight, DY, X, Weight Tensor
	ConvOpts
}

// Put stores the operands.
func (a CausalConvWeightGradArgs) Put(o *Op) {
	o.operands(a.DWeight, a.DY, a.X, a.Weight, a.Starts)
	o.I[0] = a.Batch
}

// CausalConvWeightGrad reads the operands.
func (o *Op) CausalConvWeightGrad() CausalConvWeightGradArgs {
	return CausalConvWeightGradArgs{DWeight: o.T[0], DY: o.T[1], X: o.T[2], Weight: o.T[3], ConvOpts: ConvOpts{Batch: o.I[0], Starts: o.T[4]}}
}

// MaxConvTaps is the largest K of a causal convolution.
const MaxConvTaps = 16

const needConv = "x and y are B·T rows of C channels, weight is C×K float32 with K from 1 to 16, state has B·(K−1)·C elements, starts none or an int32 for each row (sizes: B)"

// fit reports whether x and weight have these sizes.
func (c ConvOpts) fit(x, weight Tensor) bool {
	return c.Batch > 0 && x.Rows()%c.Batch == 0 && weight.Rows() == x.Cols() && weight.Cols() >= 1 && weight.Cols() <= MaxConvTaps &&
		startsFit(c.Starts, x)
}
