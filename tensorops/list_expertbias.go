package tensorops

// The operations for biases of experts. GroupedOpts.Bias adds them.

// GroupedColSum records sum[e] += Σ w[p]·x[p] over the rows p of each expert e, offsets[e] to offsets[e+1]−1: sum E×N float32,
// x R×N, offsets E+1 int32. It is the gradient of GroupedOpts.Bias. Without weights w is 1. With them, weights and places are
// N·k, k for each of N tokens, and the row places[n, j] has the weight weights[n, j]: the gradient where Combine weighs the rows.
// Offsets that do not ascend from 0 to R, and places that are no rows, fail with ErrRoute.
func (l *List) GroupedColSum(sum, x, offsets, weights, places Tensor) {
	l.groupedColSum(GroupedColSumArgs{Sum: sum, X: x, Offsets: offsets, Weights: weights, Places: places})
}

// SourceColSum is GroupedColSum over the rows of one source, of the sources into which offsets divide the rows of each expert: see
// SourceOffsets. Rows after the last offset belong to no expert. With weights, R float32, row p has the weight weights[p].
func (l *List) SourceColSum(sum, x, offsets, weights Tensor, source, sources int) {
	l.groupedColSum(GroupedColSumArgs{Sum: sum, X: x, Offsets: offsets, Weights: weights, Source: source, Sources: max(sources, 1)})
}

func (l *List) groupedColSum(a GroupedColSumArgs) {
	o := l.op(KindGroupedColSum)
	a.Put(o)
	of := experts(a.Offsets, max(a.Sources, 1))
	l.need(o, dense(Float32, a.Sum) && denseEither(a.X) && of >= 0 && a.Source >= 0 && a.Source < max(a.Sources, 1) && a.Sum.Rows() == of &&
		a.Sum.Cols() == a.X.Cols(), "sum E×N float32, x R×N, offsets E·sources (size 1)+1 int32, the source (size 0) below sources")
	if a.Sources == 0 {
		l.need(o, !a.Weights.Valid() && !a.Places.Valid() || dense(Float32, a.Weights) && dense(Int32, a.Places) &&
			a.Places.Len() == a.X.Rows() && sameMatrix(a.Weights, a.Places), "weights and places R int32 and float32, both or none")
	} else {
		l.need(o, optional(a.Weights, a.X.Rows()), "weights R float32, or none")
	}
}

// GroupedColSumArgs are the operands of KindGroupedColSum. Weights and places may be invalid.
type GroupedColSumArgs struct {
	Sum, X, Offsets, Weights, Places Tensor
	// Of SourceColSum; Sources 0: all rows of each expert.
	Source, Sources int
}

// Put stores the operands.
func (a GroupedColSumArgs) Put(o *Op) {
	o.operands(a.Sum, a.X, a.Offsets, a.Weights, a.Places)
	o.I[0], o.I[1] = a.Source, a.Sources
}

// GroupedColSum reads the operands.
func (o *Op) GroupedColSum() GroupedColSumArgs {
	return GroupedColSumArgs{Sum: o.T[0], X: o.T[1], Offsets: o.T[2], Weights: o.T[3], Places: o.T[4], Source: o.I[0], Sources: o.I[1]}
}

// WeighBias records dweights[n, j] += bias[experts[n, j]]·dy[n]: dweights N×k float32, dy N×C, bias E×C float32, experts N×k
// int32. It is what a bias of the rows that Combine weighs adds to the gradient of the weights, beside WeighRows. An expert that
// does not exist fails with ErrRoute.
func (l *List) WeighBias(dweights, dy, bias, experts Tensor) {
	o := l.op(KindWeighBias)
	WeighBiasArgs{dweights, dy, bias, experts}.Put(o)
	l.need(o, dense(Float32, dweights, bias) && denseEither(dy) && dense(Int32, experts) && sameMatrix(dweights, experts) &&
		experts.Rows() == dy.Rows() && experts.Cols() >= 1 && bias.Cols() == dy.Cols(),
		"dweights and experts N×k with k at least 1, dy N×C, bias E×C, in float32; experts int32, dy also bfloat16")
}

// WeighBiasArgs are the operands of KindWeighBias.
type WeighBiasArgs struct{ DWeights, DY, Bias, Experts Tensor }

// Put stores the operands.
func (a WeighBiasArgs) Put(o *Op) { o.operands(a.DWeights, a.DY, a.Bias, a.Experts) }

// WeighBias reads the operands.
func (o *Op) WeighBias() WeighBiasArgs {
	return WeighBiasArgs{DWeights: o.T[0], DY: o.T[1], Bias: o.T[2], Experts: o.T[3]}
}
