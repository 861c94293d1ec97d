package tensorops

// BalanceOpts are the options of BalanceLoads.
type BalanceOpts struct {
	Sigmoid bool    // as RouteOpts.Sigmoid
	Weight  float64 // of the loss in what the gradient is of
}

// BalanceLoads records the balance loss of a router's rows with given loads, such as those of more rows than its own. loads are the rows
// of each expert, E float32; scores and experts are those of Route, [N, E] float32 and [N, k] int32. A row's shares are its scores, of
// sigmoids divided by their sum. A row whose experts are all −1 is left out. Then
//
//	f[e] = k·loads[e] / Σ loads
//	loss = E·Σₙ Σₑ f[e]·shares[n, e]
//
// That is the balance loss of Switch Transformer (Fedus et al. 2021, arXiv 2101.03961, equations 4 to 6) times N, with the fraction f of
// all counted rows (Qiu et al. 2025, arXiv 2501.11873). dlogits, [N, E] float32, gets its gradient added, times Weight and with the loads
// held fixed. The loss is added to sum, one float64, if sum is valid. If all loads are 0, f is 0.
func (l *List) BalanceLoads(dlogits, sum, scores, experts, loads Tensor, b BalanceOpts) {
	o := l.op(KindBalanceLoads)
	BalanceLoadsArgs{dlogits, sum, scores, experts, loads, b}.Put(o)
	l.need(o, dense(Float32, dlogits, scores, loads) && dense(Int32, experts) && sameMatrix(dlogits, scores) &&
		loads.Len() == scores.Cols() && experts.Rows() == scores.Rows() && experts.Cols() >= 1 && experts.Cols() <= scores.Cols() &&
		(!sum.Valid() || dense(Float64, sum) && sum.Len() == 1) && finite(b.Weight),
		"dlogits and scores N×E, experts N×k with k from 1 to E, loads E float32, sum none or one float64, a finite weight (number 0)")
}

// BalanceLoadsArgs are the operands of KindBalanceLoads.
type BalanceLoadsArgs struct {
	DLogits, Sum, Scores, Experts, Loads Tensor // sum may be invalid
	BalanceOpts
}

// Put stores the operands.
func (a BalanceLoadsArgs) Put(o *Op) {
	o.operands(a.DLogits, a.Sum, a.Scores, a.Experts, a.Loads)
	o.I[0], o.F[0] = truth(a.Sigmoid), a.Weight
}

// BalanceLoads reads the operands.
func (o *Op) BalanceLoads() BalanceLoadsArgs {
	return BalanceLoadsArgs{DLogits: o.T[0], Sum: o.T[1], Scores: o.T[2], Experts: o.T[3], Loads: o.T[4],
		BalanceOpts: BalanceOpts{Sigmoid: o.I[0] != 0, Weight: o.F[0]}}
}
