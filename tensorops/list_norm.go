package tensorops

// LayerNorm records y = (x − mean)·rstd·gamma + beta for each row (Ba, Kiros, Hinton 2016), with
// rstd = 1/√(variance + eps). stats, N×2, receives mean and rstd for the gradient; beta may be
// invalid.
func (l *List) LayerNorm(y, x, gamma, beta, stats Tensor, eps float64) {
	o := l.op(KindLayerNorm)
	LayerNormArgs{y, x, gamma, beta, stats, eps}.Put(o)
	l.need(o, denseEither(y, x) && dense(Float32, gamma, stats) && normFits(y, x, gamma, stats, 2) && optional(beta, gamma.Len()), needNorm)
}

// LayerNormArgs are the operands of KindLayerNorm.
type LayerNormArgs struct {
	Y, X, Gamma, Beta, Stats Tensor // beta may be invalid
	Eps                      float64
}

// Put stores the operands.
func (a LayerNormArgs) Put(o *Op) {
	o.operands(a.Y, a.X, a.Gamma, a.Beta, a.Stats)
	o.F[0] = a.Eps
}

// LayerNorm reads the operands.
func (o *Op) LayerNorm() LayerNormArgs {
	return LayerNormArgs{Y: o.T[0], X: o.T[1], Gamma: o.T[2], Beta: o.T[3], Stats: o.T[4], Eps: o.F[0]}
}

// LayerNormGrad records dx = the gradient of LayerNorm's input, plus skip if it is valid (the
// gradient that bypassed the norm). dx may be dy or skip.
func (l *List) LayerNormGrad(dx, dy, x, gamma, stats, skip Tensor) {
	o := l.op(KindLayerNormGrad)
	NormGradArgs{dx, dy, x, gamma, stats, skip, 0}.Put(o)
	l.need(o, denseEither(dx, dy, x) && dense(Float32, gamma, stats) && normFits(dx, x, gamma, stats, 2) && sameLen(dy, x) &&
		optionalEither(skip, x.Len()), needNorm)
}

// RMSNormGrad records dx = the gradient of RMSNorm's input, plus skip if it is valid. It takes the
// norm's options, of which eps has no effect. dx may be dy or skip.
func (l *List) RMSNormGrad(dx, dy, x, gamma, stats, skip Tensor, n RMSNormOpts) {
	o := l.op(KindRMSNormGrad)
	NormGradArgs{dx, dy, x, gamma, stats, skip, n.Offset}.Put(o)
	l.need(o, denseEither(dx, dy, x) && dense(Float32, gamma, stats) && normFits(dx, x, gamma, stats, 1) && sameLen(dy, x) &&
		optionalEither(skip, x.Len()), needNorm)
}

// NormGradArgs are the operands of KindLayerNormGrad and KindRMSNormGrad.
type NormGradArgs struct {
	DX, DY, X, Gamma, Stats, Skip Tensor  // skip may be invalid
	Offset                        float64 // of gamma; 0 for LayerNorm
}

// Put stores the operands.
func (a NormGradArgs) Put(o *Op) {
	o.operands(a.DX, a.DY, a.X, a.Gamma, a.Stats, a.Skip)
	o.F[0] = a.Offset
}

// LayerNormGrad reads the operands.
func (o *Op) LayerNormGrad() NormGradArgs { return o.normGrad() }

// RMSNormGrad reads the operands.
func (o *Op) RMSNormGrad() NormGradArgs { return o.normGrad() }

func (o *Op) normGrad() NormGradArgs {
	return NormGradArgs{DX: o.T[0], DY: o.T[1], X: o.T[2], Gamma: o.T[3], Stats: o.T[4], Skip: o.T[5], Offset: o.F[0]}
}

// LayerNormWeightGrad records dgamma += Σ dy·x̂ and dbeta += Σ dy over the rows; dbeta may be
// invalid.
func (l *List) LayerNormWeightGrad(dgamma, dbeta, dy, x, stats Tensor) {
	o := l.op(KindLayerNormWeightGrad)
	LayerNormWeightGradArgs{dgamma, dbeta, dy, x, stats}.Put(o)
	l.need(o, dense(Float32, dgamma, stats) && denseEither(dy, x) && normFits(dy, x, dgamma, stats, 2) && optional(dbeta, dgamma.Len()),
		needNorm)
}

// LayerNormWeightGradArgs are the operands of KindLayerNormWeightGrad.
type LayerNormWeightGradArgs struct {
	DGamma, DBeta, DY, X, Stats Tensor // dbeta may be invalid
}

// Put stores the operands.
func (a LayerNormWeightGradArgs) Put(o *Op) { o.operands(a.DGamma, a.DBeta, a.DY, a.X, a.Stats) }

// LayerNormWeightGrad reads the operands.
func (o *Op) LayerNormWeightGrad() LayerNormWeightGradArgs {
	return LayerNormWeightGradArgs{DGamma: o.T[0], DBeta: o.T[1], DY: o.T[2], X: o.T[3], Stats: o.T[4]}
}

// RMSNormOpts are the numbers of an RMSNorm.
type RMSNormOpts struct {
	Eps    float64
	Offset float64 // gamma + Offset multiplies; 1 in families that store weights around 0
}

// RMSNorm records y = x·rstd·(gamma + offset) for each row (Zhang, Sennrich 2019), with
// rstd = 1/√(mean of squares + eps). stats, N×1, receives rstd.
func (l *List) RMSNorm(y, x, gamma, stats Tensor, n RMSNormOpts) {
	o := l.op(KindRMSNorm)
	RMSNormArgs{y, x, gamma, stats, n}.Put(o)
	l.need(o, denseEither(y, x) && dense(Float32, gamma, stats) && normFits(y, x, gamma, stats, 1), needNorm)
}

// RMSNormArgs are the operands of KindRMSNorm.
type RMSNormArgs struct {
	Y, X, Gamma, Stats Tensor
	RMSNormOpts
}

// Put stores the operands.
func (a RMSNormArgs) Put(o *Op) {
	o.operands(a.Y, a.X, a.Gamma, a.Stats)
	o.F[0], o.F[1] = a.Eps, a.Offset
}

// RMSNorm reads the operands.
func (o *Op) RMSNorm() RMSNormArgs {
	return RMSNormArgs{Y: o.T[0], X: o.T[1], Gamma: o.T[2], Stats: o.T[3], RMSNormOpts: RMSNormOpts{Eps: o.F[0], Offset: o.F[1]}}
}

// RMSNormWeightGrad records dgamma += Σ dy·x·rstd over the rows.
func (l *List) RMSNormWeightGrad(dgamma, dy, x, stats Tensor) {
	o := l.op(KindRMSNormWeightGrad)
	RMSNormWeightGradArgs{dgamma, dy, x, stats}.Put(o)
	l.need(o, dense(Float32, dgamma, stats) && denseEither(dy, x) && normFits(dy, x, dgamma, stats, 1), needNorm)
}

// RMSNormWeightGradArgs are the operands of KindRMSNormWeightGrad.
type RMSNormWeightGradArgs struct{ DGamma, DY, X, Stats Tensor }

// Put stores the operands.
func (a RMSNormWeightGradArgs) Put(o *Op) { o.operands(a.DGamma, a.DY, a.X, a.Stats) }

// RMSNormWeightGrad reads the operands.
func (o *Op) RMSNormWeightGrad() RMSNormWeightGradArgs {
	return RMSNormWeightGradArgs{DGamma: o.T[0], DY: o.T[1], X: o.T[2], Stats: o.T[3]}
}

const needNorm = "rows are N×C with C > 0, gamma and beta have C elements, stats two a row (RMSNorm: one), skip is N×C"

func normFits(y, x, gamma, stats Tensor, per int) bool {
	return sameLen(y, x) && gamma.Len() == x.Cols() && x.Cols() > 0 && stats.Len() == per*x.Rows()
}
