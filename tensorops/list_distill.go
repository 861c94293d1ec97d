package tensorops

// DistillStats is the number of float64 sums that Distill reports.
const DistillStats = 3

// DistillOpts are the numbers of a distillation loss.
type DistillOpts struct {
	Grad        Tensor  // N×V: Scale times the gradient, zero in rows without a target; may be logits
	Scale       float64 // factor of the gradient
	Temperature float64 // of both distributions; above 0
	Weight      float64 // of the divergence; 1−Weight is that of the cross-entropy
	Reverse     bool    // the divergence of the student from the teacher, KL(q‖p); else KL(p‖q)
}

// Distill records, for logits N×V, N targets and a teacher's K most likely ids of each row, ids N×K and logp N×(K+1),
//
//	stats = (Σ cross-entropy, Σ divergence, number of targets)
//
// over the targets that are not IgnoreTarget, in ascending n. The divergence is between the distributions of K+1 outcomes: each of
// ids, and all others together. p = exp(logp) is the teacher's at the temperature, with that of the others last, and q is softmax of
// logits / Temperature. With K = V there are no others, and the last column is not read. If o.Grad is valid, it also records the
// gradient of
//
//	(1−Weight)·cross-entropy + Weight·Temperature²·divergence
//
// by the logits (Hinton et al., arXiv:1503.02531, for the square of the temperature). Ids of a row are different. An id or a target
// outside 0 to V−1 fails with ErrToken. Only the CPU computes it.
func (l *List) Distill(stats, logits, targets, ids, logp Tensor, o DistillOpts) {
	op := l.op(KindDistill)
	DistillArgs{stats, logits, targets, ids, logp, o}.Put(op)
	n := logits.Rows()
	l.need(op, dense(Float64, stats) && either(logits) && dense(Int32, targets, ids) && dense(Float32, logp) &&
		stats.Len() == DistillStats && targets.Len() == n && logits.Cols() > 0 && ids.Rows() == n && ids.Cols() > 0 &&
		ids.Cols() <= logits.Cols() && logp.Rows() == n && logp.Cols() == ids.Cols()+1, needDistill)
	l.need(op, !o.Grad.Valid() || either(o.Grad) && sameMatrix(o.Grad, logits), "the gradient has the logits' shape")
	l.need(op, o.Temperature > 0 && o.Weight >= 0 && o.Weight <= 1, "the temperature is above 0, the weight from 0 to 1")
}

// DistillArgs are the operands of KindDistill.
type DistillArgs struct {
	Stats, Logits, Targets, IDs, LogP Tensor
	DistillOpts
}

// Put stores the operands.
func (a DistillArgs) Put(o *Op) {
	o.operands(a.Stats, a.Logits, a.Targets, a.IDs, a.LogP, a.Grad)
	o.F[0], o.F[1], o.F[2] = a.Scale, a.Temperature, a.Weight
	if o.I[0] = 0; a.Reverse {
		o.I[0] = 1
	}
}

// Distill reads the operands.
func (o *Op) Distill() DistillArgs {
	return DistillArgs{Stats: o.T[0], Logits: o.T[1], Targets: o.T[2], IDs: o.T[3], LogP: o.T[4],
		DistillOpts: DistillOpts{Grad: o.T[5], Scale: o.F[0], Temperature: o.F[1], Weight: o.F[2], Reverse: o.I[0] != 0}}
}

const needDistill = "logits are N×V with V > 0, targets N int32, ids N×K int32, 0 < K ≤ V, logp N×(K+1) float32, stats three float64"
