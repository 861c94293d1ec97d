package tensorops

// SquaredNorm records out[0] = Σ x² in float64, in blocks of a fixed size that are added in
// ascending order.
func (l *List) SquaredNorm(out, x Tensor) {
	o := l.op(KindSquaredNorm)
	SquaredNormArgs{out, x}.Put(o)
	l.need(o, dense(Float64, out) && denseEither(x) && out.Len() == 1, "one float64 for a tensor of float32 or bfloat16")
}

// SquaredNormArgs are the operands of KindSquaredNorm.
type SquaredNormArgs struct{ Out, X Tensor }

// Put stores the operands.
func (a SquaredNormArgs) Put(o *Op) { o.operands(a.Out, a.X) }

// SquaredNorm reads the operands.
func (o *Op) SquaredNorm() SquaredNormArgs { return SquaredNormArgs{Out: o.T[0], X: o.T[1]} }

// AdamWOpts holds the numbers of one update.
type AdamWOpts struct {
	LR, Beta1, Beta2, Eps, WeightDecay float64
	GradScale                          float64 // factor applied to the gradient first
	Step                               int     // from 1, for the bias correction
	ClearGrad                          bool    // set the gradient to 0 for the next step
	Copy                               Tensor  // receives the new weight in bfloat16; may be invalid
}

// AdamW records one update with decoupled weight decay (Loshchilov, Hutter 2019): w −=
// LR·(WeightDecay·w + m̂/(√v̂ + Eps)).
func (l *List) AdamW(w, m, v, g Tensor, a AdamWOpts) {
	o := l.op(KindAdamW)
	AdamWArgs{w, m, v, g, a}.Put(o)
	l.need(o, dense(Float32, w, m, v, g) && sameLen(w, m, v, g) && copyFits(a.Copy, w) && a.Step >= 1,
		"all have the same number of elements, the copy is bfloat16, and the step (size 0) counts from 1")
}

// AdamWArgs are the operands of KindAdamW.
type AdamWArgs struct {
	W, M, V, G Tensor
	AdamWOpts
}

// Put stores the operands.
func (a AdamWArgs) Put(o *Op) {
	o.operands(a.W, a.M, a.V, a.G, a.Copy)
	o.F = [8]float64{a.LR, a.Beta1, a.Beta2, a.Eps, a.WeightDecay, a.GradScale}
	o.I[0] = a.Step
	o.set(FlagClear, a.ClearGrad)
}

// AdamW reads the operands.
func (o *Op) AdamW() AdamWArgs {
	return AdamWArgs{W: o.T[0], M: o.T[1], V: o.T[2], G: o.T[3], AdamWOpts: AdamWOpts{
		LR: o.F[0], Beta1: o.F[1], Beta2: o.F[2], Eps: o.F[3], WeightDecay: o.F[4], GradScale: o.F[5],
		Step: o.I[0], ClearGrad: o.Has(FlagClear), Copy: o.T[4],
	}}
}

// SGDOpts holds the numbers of one update.
type SGDOpts struct {
	LR, Momentum, WeightDecay float64
	GradScale                 float64
	Copy                      Tensor // receives the new weight in bfloat16; may be invalid
}

// SGD records one update: d = g·GradScale + WeightDecay·w; m = Momentum·m + d; w −= LR·m. If m is
// invalid, w −= LR·d.
func (l *List) SGD(w, m, g Tensor, s SGDOpts) {
	o := l.op(KindSGD)
	SGDArgs{w, m, g, s}.Put(o)
	l.need(o, dense(Float32, w, g) && sameLen(w, g) && optional(m, w.Len()) && copyFits(s.Copy, w),
		"w, m and g are contiguous float32 tensors with the same number of elements, the copy is bfloat16")
}

// SGDArgs are the operands of KindSGD.
type SGDArgs struct {
	W, M, G Tensor // m may be invalid
	SGDOpts
}

// Put stores the operands.
func (a SGDArgs) Put(o *Op) {
	o.operands(a.W, a.M, a.G, a.Copy)
	o.F = [8]float64{a.LR, a.Momentum, a.WeightDecay, a.GradScale}
}

// SGD reads the operands.
func (o *Op) SGD() SGDArgs {
	return SGDArgs{W: o.T[0], M: o.T[1], G: o.T[2],
		SGDOpts: SGDOpts{LR: o.F[0], Momentum: o.F[1], WeightDecay: o.F[2], GradScale: o.F[3], Copy: o.T[3]}}
}

// copyFits reports whether c is invalid, or a bfloat16 tensor of w's length.
func copyFits(c, w Tensor) bool { return !c.Valid() || dense(BFloat16, c) && c.Len() == w.Len() }
