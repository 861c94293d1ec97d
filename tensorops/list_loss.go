package tensorops

// IgnoreTarget is a target that carries no loss.
const IgnoreTarget = -1

// LossStats is the number of float64 sums that CrossEntropy reports.
const LossStats = 2

// CrossEntropy records, for logits N×V and N targets, lse[n] = log Σ exp of row n
// (float64) and stats = (Σ lse[n] − logits[n, target], number of targets), both
// over the targets that are not IgnoreTarget, in ascending n. A target outside
// of 0..V−1 fails with ErrToken. T: stats, lse, logits, targets.
func (l *List) CrossEntropy(stats, lse, logits, targets Tensor) {
	l.need(l.op(KindCrossEntropy, stats, lse, logits, targets),
		dense(Float64, stats, lse) && dense(Float32, logits) && dense(Int32, targets) && stats.Len() == LossStats && lossFits(lse, logits, targets), needLoss)
}

// CrossEntropyGrad records dlogits = scale·(softmax(logits) − onehot(target)),
// zero in rows without a target; dlogits may be logits.
// T: dlogits, logits, lse, targets. F: scale.
func (l *List) CrossEntropyGrad(dlogits, logits, lse, targets Tensor, scale float64) {
	o := l.op(KindCrossEntropyGrad, dlogits, logits, lse, targets)
	o.F[0] = scale
	l.need(o, dense(Float32, dlogits, logits) && dense(Float64, lse) && dense(Int32, targets) && sameLen(dlogits, logits) && lossFits(lse, logits, targets), needLoss)
}

const needLoss = "logits are N×V float32 with V > 0, lse N float64, targets N int32, stats two float64"

func lossFits(lse, logits, targets Tensor) bool {
	return lse.Len() == logits.Rows() && targets.Len() == logits.Rows() && logits.Cols() > 0
}
