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

// PositionOpts says which row of a weight each row of x has for its position.
type PositionOpts struct {
	Period int // T: row n is at position First + n mod Period
	First  int // position of a sequence's first row
	// Starts, an int32 for each row of x, is where the row's document starts: row n has position
	// First + n mod Period − Starts[n]. Outside the weight's rows, the first or the last row is
	// taken. Invalid: all start at 0.
	Starts Tensor
}

// put stores the options that are no tensors.
func (p PositionOpts) put(o *Op) { o.I[0], o.I[1] = p.Period, p.First }

// positionOpts reads them.
func (o *Op) positionOpts(starts Tensor) PositionOpts {
	return PositionOpts{Period: o.I[0], First: o.I[1], Starts: starts}
}

// Row returns the weight's row for row n of x, given the start of its document, 0 without Starts, and
// the number of the weight's rows.
func (p PositionOpts) Row(n, start, rows int) int {
	return min(max(0, p.First+n%p.Period-start), rows-1)
}

// AddPositions records out[n] = x[n] + weight[position of row n]: x N×C, period T. out may be x.
func (l *List) AddPositions(out, x, weight Tensor, p PositionOpts) {
	o := l.op(KindAddPositions)
	AddPositionsArgs{out, x, weight, p}.Put(o)
	l.need(o, denseEither(out, x, weight) && sameLen(out, x) && x.Cols() == weight.Cols() && p.fit(x, weight),
		"x is whole periods (sizes: period, first position), weight has a row for each position, starts none or an int32 for each row of x")
}

// AddPositionsArgs are the operands of KindAddPositions.
type AddPositionsArgs struct {
	Out, X, Weight Tensor
	PositionOpts
}

// Put stores the operands.
func (a AddPositionsArgs) Put(o *Op) {
	o.operands(a.Out, a.X, a.Weight, a.Starts)
	a.put(o)
}

// AddPositions reads the operands.
func (o *Op) AddPositions() AddPositionsArgs {
	return AddPositionsArgs{Out: o.T[0], X: o.T[1], Weight: o.T[2], PositionOpts: o.positionOpts(o.T[3])}
}

// PositionsGrad records grad[position of row n] += dy[n] in ascending n.
func (l *List) PositionsGrad(grad, dy Tensor, p PositionOpts) {
	o := l.op(KindPositionsGrad)
	PositionsGradArgs{grad, dy, p}.Put(o)
	l.need(o, dense(Float32, grad) && denseEither(dy) && grad.Cols() == dy.Cols() && p.fit(dy, grad),
		"dy is whole periods (sizes: period, first position), grad has a row for each position, starts none or an int32 for each row of dy")
}

// PositionsGradArgs are the operands of KindPositionsGrad.
type PositionsGradArgs struct {
	Grad, DY Tensor
	PositionOpts
}

// Put stores the operands.
func (a PositionsGradArgs) Put(o *Op) {
	o.operands(a.Grad, a.DY, a.Starts)
	a.put(o)
}

// PositionsGrad reads the operands.
func (o *Op) PositionsGrad() PositionsGradArgs {
	return PositionsGradArgs{Grad: o.T[0], DY: o.T[1], PositionOpts: o.positionOpts(o.T[2])}
}

// fit reports whether x is whole periods, every position has a row, and the starts are for x.
func (p PositionOpts) fit(x, weight Tensor) bool {
	return p.Period > 0 && p.First >= 0 && x.Rows()%p.Period == 0 && p.First+p.Period <= weight.Rows() && startsFit(p.Starts, x)
}
