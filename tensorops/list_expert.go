package tensorops

import "fmt"

// The operations between a router and its experts. Route decides which of R = N·k rows belongs to which expert. These
// numbers are data: a list is recorded without them, over all R rows, and the device reads offsets.

// Dispatch records rows[places[n, j]] = x[n]: rows R×C, x N×C, places N×k int32.
func (l *List) Dispatch(rows, x, places Tensor) {
	o := l.op(KindDispatch)
	DispatchArgs{rows, x, places}.Put(o)
	l.need(o, denseEither(rows, x) && placed(rows, x, places), needPlaces)
}

// placed reports whether places say for each row of x which of all rows are its own.
func placed(rows, x, places Tensor) bool {
	return dense(Int32, places) && places.Rows() == x.Rows() && places.Len() == rows.Rows() && places.Cols() >= 1 && rows.Cols() == x.Cols()
}

const needPlaces = "rows N·k×C, x or y N×C, places N×k int32 with k at least 1"

// DispatchArgs are the operands of KindDispatch.
type DispatchArgs struct{ Rows, X, Places Tensor }

// Put stores the operands.
func (a DispatchArgs) Put(o *Op) { o.operands(a.Rows, a.X, a.Places) }

// Dispatch reads the operands.
func (o *Op) Dispatch() DispatchArgs {
	return DispatchArgs{Rows: o.T[0], X: o.T[1], Places: o.T[2]}
}

// Combine records y[n] = Σ weights[n, j]·rows[places[n, j]], added in float32 in ascending j. As Route has a row's experts
// in ascending order, so is the sum, whatever their scores. Without weights it is the gradient of Dispatch.
func (l *List) Combine(y, rows, places, weights Tensor) {
	o := l.op(KindCombine)
	CombineArgs{y, rows, places, weights}.Put(o)
	l.need(o, denseEither(y, rows) && placed(rows, y, places) && optional(weights, places.Len()),
		needPlaces+", weights none or N×k float32")
}

// CombineArgs are the operands of KindCombine.
type CombineArgs struct{ Y, Rows, Places, Weights Tensor } // weights may be invalid

// Put stores the operands.
func (a CombineArgs) Put(o *Op) { o.operands(a.Y, a.Rows, a.Places, a.Weights) }

// Combine reads the operands.
func (o *Op) Combine() CombineArgs {
	return CombineArgs{Y: o.T[0], Rows: o.T[1], Places: o.T[2], Weights: o.T[3]}
}

// WeighRows records, for the row p = places[n, j] of each pair:
//
//	dweights[n, j] = rows[p]·drows[p]
//	rows[p] = weights[n, j]·rows[p],  drows[p] = weights[n, j]·drows[p]
//
// A linear function of rows that Combine weighs has these gradients: with drows those of the rows before they were
// weighed, the results are the gradient of the weights, and of the rows, and the rows that the gradient of the function's
// own weight is made of. So an expert's output need not be kept.
func (l *List) WeighRows(rows, drows, dweights, weights, places Tensor) {
	o := l.op(KindWeighRows)
	WeighRowsArgs{Rows: rows, DRows: drows, DWeights: dweights, Weights: weights, Places: places}.Put(o)
	l.need(o, denseEither(rows, drows) && sameMatrix(rows, drows) && dense(Float32, dweights, weights) && dense(Int32, places) &&
		places.Len() == rows.Rows() && sameMatrix(weights, places) && sameMatrix(dweights, places),
		"rows and drows N·k×C, weights and dweights N×k float32, places N×k int32")
}

// WeighOwnRows is WeighRows where row n has the weight n: dweights and weights are R×1. Only the rows before the last of the
// offsets, int32, are computed.
func (l *List) WeighOwnRows(rows, drows, dweights, weights, offsets Tensor) {
	o := l.op(KindWeighRows)
	WeighRowsArgs{Rows: rows, DRows: drows, DWeights: dweights, Weights: weights, Offsets: offsets}.Put(o)
	l.need(o, denseEither(rows, drows) && sameMatrix(rows, drows) && dense(Float32, dweights, weights) && dense(Int32, offsets) &&
		offsets.Len() >= 1 && weights.Len() == rows.Rows() && sameMatrix(weights, dweights) && weights.Cols() == 1,
		"rows and drows R×C, weights and dweights R×1 float32, offsets int32")
}

// WeighRowsArgs are the operands of KindWeighRows. Either places or offsets are valid.
type WeighRowsArgs struct{ Rows, DRows, DWeights, Weights, Places, Offsets Tensor }

// Put stores the operands.
func (a WeighRowsArgs) Put(o *Op) {
	o.operands(a.Rows, a.DRows, a.DWeights, a.Weights, a.Places, a.Offsets)
}

// WeighRows reads the operands.
func (o *Op) WeighRows() WeighRowsArgs {
	return WeighRowsArgs{Rows: o.T[0], DRows: o.T[1], DWeights: o.T[2], Weights: o.T[3], Places: o.T[4], Offsets: o.T[5]}
}

// GroupedOpts holds the options of a product of the rows of several experts.
type GroupedOpts struct {
	TransB     bool // B holds a matrix N×K for each expert; otherwise K×N
	Accumulate bool // C += instead of C =
	BF16       bool // as MatMulOpts.BF16
	// Sources is the number of parts into which offsets divide the rows of each expert: see SourceOffsets. Then offsets has
	// E·Sources+1 numbers, and rows after the last one belong to no expert. 0: one part, and every row has an expert.
	Sources int
	// Bias, [E, N] float32, is added to the rows of each expert as MatMulOpts.Bias; not with Accumulate. Invalid: there is none.
	Bias Tensor
	// Packed is the result of PackExperts for B, with the same TransB and BF16, made after B was last written. A device may read it
	// instead of B. It changes no bit.
	Packed Tensor
}

// parts returns the number of parts of each expert's rows.
func (g GroupedOpts) parts() int { return max(g.Sources, 1) }

// experts returns the number of experts of offsets; negative: the number of offsets is impossible.
func experts(offsets Tensor, parts int) int {
	if !dense(Int32, offsets) || offsets.Len() < 1 || parts < 1 || (offsets.Len()-1)%parts != 0 {
		return -1
	}
	return (offsets.Len() - 1) / parts
}

// GroupedMatMul records C[p] = A[p]·B[e] for the rows p of each expert e, offsets[e] to offsets[e+1]−1: A is R×K, C is R×N,
// B the matrices of E experts one after another, [E, K, N] or with TransB [E, N, K], offsets E+1 int32. Types and sums are
// those of MatMul: a row of C is bit-identical to that of a product of any number of rows. Offsets that do not ascend from 0 to R fail with
// ErrRoute.
func (l *List) GroupedMatMul(c, a, b, offsets Tensor, g GroupedOpts) {
	o := l.op(KindGroupedMatMul)
	GroupedMatMulArgs{c, a, b, offsets, g}.Put(o)
	k, n := a.Cols(), c.Cols()
	if g.TransB {
		k, n = n, k
	}
	of := experts(offsets, g.parts())
	l.need(o, denseEither(c, a, b) && g.Sources >= 0 && of >= 0 && c.Rows() == a.Rows() && b.Cols() == n && b.Rows() == of*k,
		"A R×K, C R×N, B E matrices K×N or with TransB N×K, offsets E·sources (size 0)+1 int32, in float32 or bfloat16")
	l.need(o, g.BF16 || float(c, a), "an A or C of bfloat16 needs BF16")
	l.need(o, !g.Accumulate || float(c), "with Accumulate C must be float32")
	l.need(o, !g.Bias.Valid() || !g.Accumulate && dense(Float32, g.Bias) && g.Bias.Rows() == of && g.Bias.Cols() == c.Cols(),
		"a bias has E rows of N float32 and cannot be combined with Accumulate")
	l.need(o, !g.Packed.Valid() || dense(packedType(g.BF16), g.Packed) && g.Packed.Len() == of*PackedLen(a.Cols(), c.Cols()),
		"a packed B has PackedLen elements for each expert, of the type of the product's operands")
}

// GroupedMatMulArgs are the operands of KindGroupedMatMul.
type GroupedMatMulArgs struct {
	C, A, B, Offsets Tensor
	GroupedOpts
}

// Put stores the operands.
func (a GroupedMatMulArgs) Put(o *Op) {
	o.operands(a.C, a.A, a.B, a.Offsets, a.Bias, a.Packed)
	o.I[0] = a.Sources
	o.set(FlagTransB, a.TransB)
	o.set(FlagAccumulate, a.Accumulate)
	o.set(FlagBF16, a.BF16)
}

// GroupedMatMul reads the operands.
func (o *Op) GroupedMatMul() GroupedMatMulArgs {
	return GroupedMatMulArgs{C: o.T[0], A: o.T[1], B: o.T[2], Offsets: o.T[3],
		GroupedOpts: GroupedOpts{TransB: o.Has(FlagTransB), Accumulate: o.Has(FlagAccumulate), BF16: o.Has(FlagBF16), Sources: o.I[0],
			Bias: o.T[4], Packed: o.T[5]}}
}

// GroupedWeightGrad records dweight[e] += dyᵀ·x over the rows of each expert e: dweight [E, N, K] float32, dy R×N, x R×K,
// offsets E+1 int32. It is the weight gradient of GroupedMatMul with TransB.
func (l *List) GroupedWeightGrad(dweight, dy, x, offsets Tensor, bf16 bool) {
	l.groupedWeightGrad(GroupedWeightGradArgs{DWeight: dweight, DY: dy, X: x, Offsets: offsets, BF16: bf16})
}

// SourceWeightGrad is GroupedWeightGrad over the rows of one source, of the sources into which offsets divide the rows of each
// expert: see SourceOffsets. Rows after the last offset belong to no expert.
func (l *List) SourceWeightGrad(dweight, dy, x, offsets Tensor, source, sources int, bf16 bool) {
	l.groupedWeightGrad(GroupedWeightGradArgs{dweight, dy, x, offsets, bf16, source, max(sources, 1)})
}

func (l *List) groupedWeightGrad(a GroupedWeightGradArgs) {
	o := l.op(KindGroupedWeightGrad)
	a.Put(o)
	of := experts(a.Offsets, max(a.Sources, 1))
	l.need(o, dense(Float32, a.DWeight) && denseEither(a.DY, a.X) && of >= 0 && a.Source >= 0 && a.Source < max(a.Sources, 1) &&
		a.DY.Rows() == a.X.Rows() && a.DWeight.Cols() == a.X.Cols() && a.DWeight.Rows() == of*a.DY.Cols(),
		"dy R×N, x R×K, dweight E matrices N×K float32, offsets E·sources (size 1)+1 int32, the source (size 0) below sources")
	l.need(o, a.BF16 || float(a.DY, a.X), "dy or x of bfloat16 needs bf16")
}

// GroupedWeightGradArgs are the operands of KindGroupedWeightGrad.
type GroupedWeightGradArgs struct {
	DWeight, DY, X, Offsets Tensor
	BF16                    bool
	// Of SourceWeightGrad; Sources 0: all rows of each expert.
	Source, Sources int
}

// Put stores the operands.
func (a GroupedWeightGradArgs) Put(o *Op) {
	o.operands(a.DWeight, a.DY, a.X, a.Offsets)
	o.I[0], o.I[1] = a.Source, a.Sources
	o.set(FlagBF16, a.BF16)
}

// GroupedWeightGrad reads the operands.
func (o *Op) GroupedWeightGrad() GroupedWeightGradArgs {
	return GroupedWeightGradArgs{DWeight: o.T[0], DY: o.T[1], X: o.T[2], Offsets: o.T[3], BF16: o.Has(FlagBF16), Source: o.I[0],
		Sources: o.I[1]}
}

// CheckOffsets returns an ErrRoute unless offsets ascend from 0 to the number of rows. Devices call it.
func CheckOffsets(offsets []int32, rows int) error { return CheckSourceOffsets(offsets, rows, 0) }

// CheckSourceOffsets is CheckOffsets for offsets that divide the rows of each expert into those of sources. Unless that is 0,
// they may end before the last row.
func CheckSourceOffsets(offsets []int32, rows, sources int) error {
	if last := int(offsets[len(offsets)-1]); offsets[0] != 0 || sources == 0 && last != rows || last > rows {
		return fmt.Errorf("%w: the offsets of %d experts are from %d to %d, for %d rows", ErrRoute, len(offsets)-1, offsets[0],
			offsets[len(offsets)-1], rows)
	}
	for e := range len(offsets) - 1 {
		if offsets[e+1] < offsets[e] {
			return fmt.Errorf("%w: the rows of expert %d are from %d to %d", ErrRoute, e, offsets[e], offsets[e+1])
		}
	}
	return nil
}

// CheckPlace returns an ErrRoute unless there is such a row. Devices call it.
func CheckPlace(pair int, place int32, rows int) error {
	if place < 0 || int(place) >= rows {
		return fmt.Errorf("%w: pair %d has row %d of %d", ErrRoute, pair, place, rows)
	}
	return nil
}
