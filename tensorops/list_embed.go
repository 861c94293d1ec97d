package tensorops

// Embed records out[n] = weight[ids[n]]: out N×C, weight V×C, ids N int32. An id outside 0 to V−1
// fails with ErrToken.
func (l *List) Embed(out, weight, ids Tensor) {
	o := l.op(KindEmbed)
	EmbedArgs{out, weight, ids}.Put(o)
	l.need(o, denseEither(out, weight) && dense(Int32, ids) && out.Rows() == ids.Len() && out.Cols() == weight.Cols(),
		"out is N×C, weight V×C, ids N int32")
}

// EmbedArgs are the operands of KindEmbed.
type EmbedArgs struct{ Out, Weight, IDs Tensor }

// Put stores the operands.
func (a EmbedArgs) Put(o *Op) { o.operands(a.Out, a.Weight, a.IDs) }

// Embed reads the operands.
func (o *Op) Embed() EmbedArgs { return EmbedArgs{Out: o.T[0], Weight: o.T[1], IDs: o.T[2]} }

// EmbedGrad records grad[ids[n]] += dy[n] in ascending n.
func (l *List) EmbedGrad(grad, dy, ids Tensor) {
	o := l.op(KindEmbedGrad)
	EmbedGradArgs{grad, dy, ids}.Put(o)
	l.need(o, dense(Float32, grad) && denseEither(dy) && dense(Int32, ids) && dy.Rows() == ids.Len() && dy.Cols() == grad.Cols(),
		"dy is N×C, grad V×C, ids N int32")
}

// EmbedGradArgs are the operands of KindEmbedGrad.
type EmbedGradArgs struct{ Grad, DY, IDs Tensor }

// Put stores the operands.
func (a EmbedGradArgs) Put(o *Op) { o.operands(a.Grad, a.DY, a.IDs) }

// EmbedGrad reads the operands.
func (o *Op) EmbedGrad() EmbedGradArgs {
	return EmbedGradArgs{Grad: o.T[0], DY: o.T[1], IDs: o.T[2]}
}

// AddPositions records out[n] = x[n] + weight[first + n mod period]: x N×C,
// period T. out may be x.
func (l *List) AddPositions(out, x, weight Tensor, period, first int) {
	o := l.op(KindAddPositions)
	AddPositionsArgs{out, x, weight, period, first}.Put(o)
	l.need(o, denseEither(out, x, weight) && sameLen(out, x) && x.Cols() == weight.Cols() && fits(x, weight, period, first),
		"x is whole periods (sizes: period, first position), weight has a row for each position")
}

// AddPositionsArgs are the operands of KindAddPositions.
type AddPositionsArgs struct {
	Out, X, Weight Tensor
	Period, First  int
}

// Put stores the operands.
func (a AddPositionsArgs) Put(o *Op) {
	o.operands(a.Out, a.X, a.Weight)
	o.I[0], o.I[1] = a.Period, a.First
}

// AddPositions reads the operands.
func (o *Op) AddPositions() AddPositionsArgs {
	return AddPositionsArgs{Out: o.T[0], X: o.T[1], Weight: o.T[2], Period: o.I[0], First: o.I[1]}
}

// PositionsGrad records grad[first + n mod period] += dy[n] in ascending n.
func (l *List) PositionsGrad(grad, dy Tensor, period, first int) {
	o := l.op(KindPositionsGrad)
	PositionsGradArgs{grad, dy, period, first}.Put(o)
	l.need(o, dense(Float32, grad) && denseEither(dy) && grad.Cols() == dy.Cols() && fits(dy, grad, period, first),
		"dy is whole periods (sizes: period, first position), grad has a row for each position")
}

// PositionsGradArgs are the operands of KindPositionsGrad.
type PositionsGradArgs struct {
	Grad, DY      Tensor
	Period, First int
}

// Put stores the operands.
func (a PositionsGradArgs) Put(o *Op) {
	o.operands(a.Grad, a.DY)
	o.I[0], o.I[1] = a.Period, a.First
}

// PositionsGrad reads the operands.
func (o *Op) PositionsGrad() PositionsGradArgs {
	return PositionsGradArgs{Grad: o.T[0], DY: o.T[1], Period: o.I[0], First: o.I[1]}
}

// fits reports whether x is whole periods and every position has a row.
func fits(x, weight Tensor, period, first int) bool {
	return period > 0 && first >= 0 && x.Rows()%period == 0 && first+period <= weight.Rows()
}
