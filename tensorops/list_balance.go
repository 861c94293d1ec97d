package tensorops

// RouteCount records counts[r, e] += the rows of expert e in run r: counts R×E float32, experts N×k int32, as Route makes them, of which
// R equal runs of rows follow each other. A row whose experts are all −1 is left out. Sums of whole numbers up to 2²⁴ are exact, in
// whatever order they are added.
func (l *List) RouteCount(counts, experts Tensor) {
	o := l.op(KindRouteCount)
	RouteCountArgs{counts, experts}.Put(o)
	l.need(o, dense(Float32, counts) && dense(Int32, experts) && counts.Rows() >= 1 && experts.Rows()%counts.Rows() == 0 &&
		experts.Cols() >= 1 && experts.Cols() <= counts.Cols(),
		"counts R×E float32, experts N×k int32 with k from 1 to E, R runs of rows")
}

// RouteCountArgs are the operands of KindRouteCount.
type RouteCountArgs struct{ Counts, Experts Tensor }

// Put stores the operands.
func (a RouteCountArgs) Put(o *Op) { o.operands(a.Counts, a.Experts) }

// RouteCount reads the operands.
func (o *Op) RouteCount() RouteCountArgs { return RouteCountArgs{Counts: o.T[0], Experts: o.T[1]} }

// RouteBias records the update of a router's bias, which moves an expert with fewer rows than the mean up by rate, and one with more down:
//
//	bias[e] += rate·sign(Σ counts/E − counts[e])
//
// bias and counts are E float32 (Wang et al. 2024, arXiv 2408.15664, algorithm 1). An expert with as many rows as the mean, or a count
// that is not a number, does not move it.
func (l *List) RouteBias(bias, counts Tensor, rate float64) {
	o := l.op(KindRouteBias)
	RouteBiasArgs{bias, counts, rate}.Put(o)
	l.need(o, dense(Float32, bias, counts) && bias.Len() == counts.Len() && finite(rate),
		"bias and counts E float32, a finite rate (number 0)")
}

// RouteBiasArgs are the operands of KindRouteBias.
type RouteBiasArgs struct {
	Bias, Counts Tensor
	Rate         float64
}

// Put stores the operands.
func (a RouteBiasArgs) Put(o *Op) {
	o.operands(a.Bias, a.Counts)
	o.F[0] = a.Rate
}

// RouteBias reads the operands.
func (o *Op) RouteBias() RouteBiasArgs {
	return RouteBiasArgs{Bias: o.T[0], Counts: o.T[1], Rate: o.F[0]}
}

// RowGate records y[n] = σ(gate[n])·x[n]: x and y N×C, gate N float32. y may be x.
func (l *List) RowGate(y, x, gate Tensor) {
	o := l.op(KindRowGate)
	RowGateArgs{y, x, gate}.Put(o)
	l.need(o, denseEither(y, x) && sameMatrix(y, x) && dense(Float32, gate) && gate.Len() == x.Rows(), "x and y N×C, gate N float32")
}

// RowGateArgs are the operands of KindRowGate.
type RowGateArgs struct{ Y, X, Gate Tensor }

// Put stores the operands.
func (a RowGateArgs) Put(o *Op) { o.operands(a.Y, a.X, a.Gate) }

// RowGate reads the operands.
func (o *Op) RowGate() RowGateArgs { return RowGateArgs{Y: o.T[0], X: o.T[1], Gate: o.T[2]} }

// RowGateGrad records the gradients of RowGate, with s = σ(gate[n]):
//
//	dgate[n] = s·(1−s)·(x[n]·dy[n])
//	dx[n] = s·dy[n]
//
// dx, dy and x are N×C, dgate and gate N float32. dx may be dy.
func (l *List) RowGateGrad(dx, dgate, dy, x, gate Tensor) {
	o := l.op(KindRowGateGrad)
	RowGateGradArgs{dx, dgate, dy, x, gate}.Put(o)
	l.need(o, denseEither(dx, dy, x) && sameMatrix(dx, x) && sameMatrix(dy, x) && dense(Float32, dgate, gate) && gate.Len() == x.Rows() &&
		dgate.Len() == x.Rows(), "dx, dy and x N×C, dgate and gate N float32")
}

// RowGateGradArgs are the operands of KindRowGateGrad.
type RowGateGradArgs struct{ DX, DGate, DY, X, Gate Tensor }

// Put stores the operands.
func (a RowGateGradArgs) Put(o *Op) { o.operands(a.DX, a.DGate, a.DY, a.X, a.Gate) }

// RowGateGrad reads the operands.
func (o *Op) RowGateGrad() RowGateGradArgs {
	return RowGateGradArgs{DX: o.T[0], DGate: o.T[1], DY: o.T[2], X: o.T[3], Gate: o.T[4]}
}
