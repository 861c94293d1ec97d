package tensorops

// A cross-entropy in two steps, for a split vocabulary: each member of a group has the logits of a
// range of ids. CrossEntropyPart reduces them to two numbers for each row, the members exchange
// these (AllGather), and CrossEntropyJoin computes the loss and the gradient. The logits themselves
// are not exchanged.

// VocabSlice is the range of ids of some logits: they start at First, of Vocab ids in the whole
// vocabulary.
type VocabSlice struct{ First, Vocab int }

// LossParts is the number of float64 numbers that CrossEntropyPart computes for each row.
const LossParts = 2

// CrossEntropyPart records, for logits N×V of a slice of the vocabulary and N targets, parts[n] =
// (log Σ exp of row n, the target's logit, or 0 if it is in another slice). A target outside the
// whole vocabulary fails with ErrToken.
func (l *List) CrossEntropyPart(parts, logits, targets Tensor, s VocabSlice) {
	o := l.op(KindCrossEntropyPart)
	CrossEntropyPartArgs{parts, logits, targets, s}.Put(o)
	l.need(o, dense(Float64, parts) && either(logits) && dense(Int32, targets) && targets.Len() == logits.Rows() &&
		parts.Len() == LossParts*logits.Rows() && s.fits(logits), needLossPart)
}

// CrossEntropyPartArgs are the operands of KindCrossEntropyPart.
type CrossEntropyPartArgs struct {
	Parts, Logits, Targets Tensor
	VocabSlice
}

// Put stores the operands.
func (a CrossEntropyPartArgs) Put(o *Op) {
	o.operands(a.Parts, a.Logits, a.Targets)
	o.I = [8]int{a.First, a.Vocab}
}

// CrossEntropyPart reads the operands.
func (o *Op) CrossEntropyPart() CrossEntropyPartArgs {
	return CrossEntropyPartArgs{Parts: o.T[0], Logits: o.T[1], Targets: o.T[2], VocabSlice: VocabSlice{o.I[0], o.I[1]}}
}

// CrossEntropyJoin records lse and stats, as CrossEntropy does, from the parts of all slices: N
// rows of each slice, one slice after the other. If o requests the gradient, it is that of this
// slice's logits, N×V; otherwise logits may be invalid.
func (l *List) CrossEntropyJoin(stats, lse, parts, targets, logits Tensor, s VocabSlice, o CrossEntropyOpts) {
	op := l.op(KindCrossEntropyJoin)
	CrossEntropyJoinArgs{stats, lse, parts, targets, logits, s, o}.Put(op)
	n := targets.Len()
	l.need(op, dense(Float64, stats, lse, parts) && dense(Int32, targets) && stats.Len() == LossStats && lse.Len() == n &&
		(n == 0 && parts.Len() == 0 || n > 0 && parts.Len() > 0 && parts.Len()%(LossParts*n) == 0), needLossPart)
	l.need(op, !o.Grad.Valid() || either(o.Grad, logits) && sameMatrix(o.Grad, logits) && logits.Rows() == n && s.fits(logits),
		"the gradient has the logits' shape")
	l.need(op, o.fits(n), needRowScale)
}

// CrossEntropyJoinArgs are the operands of KindCrossEntropyJoin.
type CrossEntropyJoinArgs struct {
	Stats, LSE, Parts, Targets, Logits Tensor
	VocabSlice
	CrossEntropyOpts
}

// Put stores the operands.
func (a CrossEntropyJoinArgs) Put(o *Op) {
	o.operands(a.Stats, a.LSE, a.Parts, a.Targets, a.Logits, a.Grad, a.RowScale)
	o.I, o.F[0] = [8]int{a.First, a.Vocab}, a.Scale
}

// CrossEntropyJoin reads the operands.
func (o *Op) CrossEntropyJoin() CrossEntropyJoinArgs {
	return CrossEntropyJoinArgs{Stats: o.T[0], LSE: o.T[1], Parts: o.T[2], Targets: o.T[3], Logits: o.T[4],
		VocabSlice: VocabSlice{o.I[0], o.I[1]}, CrossEntropyOpts: CrossEntropyOpts{Grad: o.T[5], Scale: o.F[0], RowScale: o.T[6]}}
}

const needLossPart = "logits are N×V with V > 0, of ids within the vocabulary (sizes: the first id, ids in all), targets N int32, parts N×2 float64 of each slice, lse N float64, stats two float64"

func (s VocabSlice) fits(logits Tensor) bool {
	return s.First >= 0 && logits.Cols() > 0 && logits.Cols() <= s.Vocab-s.First
}
