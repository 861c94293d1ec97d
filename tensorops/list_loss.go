package tensorops

// IgnoreTarget is a target that has no loss.
const IgnoreTarget = -1

// LossStats is the number of float64 sums that CrossEntropy reports.
const LossStats = 2

// CrossEntropyOpts requests the gradient together with the loss.
type CrossEntropyOpts struct {
	Grad  Tensor  // N×V: Scale·RowScale·(softmax(logits) − onehot(target)), zero in rows without a target; may be logits
	Scale float64 // factor of the gradient
	// RowScale is a further factor of each row's gradient, N float64; invalid: 1. A loss of whole texts, such as that of a preference,
	// has another factor for each text.
	RowScale Tensor
}

// fits reports whether the gradient's operands fit n rows of logits.
func (o CrossEntropyOpts) fits(n int) bool {
	return !o.RowScale.Valid() || o.Grad.Valid() && dense(Float64, o.RowScale) && o.RowScale.Len() == n
}

const needRowScale = "a gradient's row factors are N float64"

// CrossEntropy records, for logits N×V and N targets, lse[n] = log Σ exp of row n (float64), and
// stats = (Σ lse[n] − logits[n, target], number of targets). Both sums are over the targets that
// are not IgnoreTarget, in ascending n. If o.Grad is valid it also records the gradient. Logits and
// gradient may be columns of wider matrices, such as padded logits. A target outside 0 to V−1 fails
// with ErrToken.
func (l *List) CrossEntropy(stats, lse, logits, targets Tensor, o CrossEntropyOpts) {
	op := l.op(KindCrossEntropy)
	CrossEntropyArgs{stats, lse, logits, targets, o}.Put(op)
	l.need(op, dense(Float64, stats, lse) && either(logits) && dense(Int32, targets) && stats.Len() == LossStats &&
		lossFits(lse, logits, targets), needLoss)
	l.need(op, !o.Grad.Valid() || either(o.Grad) && sameMatrix(o.Grad, logits), "the gradient has the logits' shape")
	l.need(op, o.fits(logits.Rows()), needRowScale)
}

// CrossEntropyArgs are the operands of KindCrossEntropy.
type CrossEntropyArgs struct {
	Stats, LSE, Logits, Targets Tensor
	CrossEntropyOpts
}

// Put stores the operands.
func (a CrossEntropyArgs) Put(o *Op) {
	o.operands(a.Stats, a.LSE, a.Logits, a.Targets, a.Grad, a.RowScale)
	o.F[0] = a.Scale
}

// CrossEntropy reads the operands.
func (o *Op) CrossEntropy() CrossEntropyArgs {
	return CrossEntropyArgs{Stats: o.T[0], LSE: o.T[1], Logits: o.T[2], Targets: o.T[3],
		CrossEntropyOpts: CrossEntropyOpts{Grad: o.T[4], Scale: o.F[0], RowScale: o.T[5]}}
}

const needLoss = "logits are N×V with V > 0, lse N float64, targets N int32, stats two float64"

func lossFits(lse, logits, targets Tensor) bool {
	return lse.Len() == logits.Rows() && targets.Len() == logits.Rows() && logits.Cols() > 0
}
