package tensorops

// LayerNorm records y = (x − mean)·rstd·gamma + beta over each row (Ba, Kiros,
// Hinton 2016), rstd = 1/√(variance + eps). stats N×2 receives mean and rstd for
// the gradient; beta may be none. T: y, x, gamma, beta, stats. F: eps.
func (l *List) LayerNorm(y, x, gamma, beta, stats Tensor, eps float64) {
	o := l.op(KindLayerNorm, y, x, gamma, beta, stats)
	o.F[0] = eps
	l.need(o, dense(Float32, y, x, gamma, stats) && normFits(y, x, gamma, stats, 2) && optional(beta, gamma.Len()), needNorm)
}

// LayerNormGrad records dx = the gradient of LayerNorm's input, plus skip where
// given (the gradient that went around the norm). dx may be dy or skip.
// T: dx, dy, x, gamma, stats, skip.
func (l *List) LayerNormGrad(dx, dy, x, gamma, stats, skip Tensor) {
	l.need(l.op(KindLayerNormGrad, dx, dy, x, gamma, stats, skip),
		dense(Float32, dx, dy, x, gamma, stats) && normFits(dx, x, gamma, stats, 2) && sameLen(dy, x) && optional(skip, x.Len()), needNorm)
}

// LayerNormWeightGrad records dgamma += Σ dy·x̂ and dbeta += Σ dy over the rows;
// dbeta may be none. T: dgamma, dbeta, dy, x, stats.
func (l *List) LayerNormWeightGrad(dgamma, dbeta, dy, x, stats Tensor) {
	l.need(l.op(KindLayerNormWeightGrad, dgamma, dbeta, dy, x, stats),
		dense(Float32, dgamma, dy, x, stats) && normFits(dy, x, dgamma, stats, 2) && optional(dbeta, dgamma.Len()), needNorm)
}

// RMSNorm records y = x·rstd·gamma over each row (Zhang, Sennrich 2019), rstd =
// 1/√(mean of squares + eps); stats N×1 receives rstd. T: y, x, gamma, stats.
// F: eps.
func (l *List) RMSNorm(y, x, gamma, stats Tensor, eps float64) {
	o := l.op(KindRMSNorm, y, x, gamma, stats)
	o.F[0] = eps
	l.need(o, dense(Float32, y, x, gamma, stats) && normFits(y, x, gamma, stats, 1), needNorm)
}

// RMSNormGrad records dx = the gradient of RMSNorm's input, plus skip where
// given. dx may be dy or skip. T: dx, dy, x, gamma, stats, skip.
func (l *List) RMSNormGrad(dx, dy, x, gamma, stats, skip Tensor) {
	l.need(l.op(KindRMSNormGrad, dx, dy, x, gamma, stats, skip),
		dense(Float32, dx, dy, x, gamma, stats) && normFits(dx, x, gamma, stats, 1) && sameLen(dy, x) && optional(skip, x.Len()), needNorm)
}

// RMSNormWeightGrad records dgamma += Σ dy·x·rstd over the rows.
// T: dgamma, dy, x, stats.
func (l *List) RMSNormWeightGrad(dgamma, dy, x, stats Tensor) {
	l.need(l.op(KindRMSNormWeightGrad, dgamma, dy, x, stats),
		dense(Float32, dgamma, dy, x, stats) && normFits(dy, x, dgamma, stats, 1), needNorm)
}

const needNorm = "rows are N×C with C > 0, gamma and beta have C elements, stats two a row (RMSNorm: one), skip is N×C"

func normFits(y, x, gamma, stats Tensor, per int) bool {
	return sameLen(y, x) && gamma.Len() == x.Cols() && x.Cols() > 0 && stats.Len() == per*x.Rows()
}
