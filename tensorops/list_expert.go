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
	WeighRowsArgs{rows, drows, dweights, weights, places}.Put(o)
	l.need(o, denseEither(rows, drows) && sameMatrix(rows, drows) && dense(Float32, dweights, weights) && dense(Int32, places) &&
		places.Len() == rows.Rows() && sameMatrix(weights, places) && sameMatrix(dweights, places),
		"rows and drows N·k×C, weights and dweights N×k float32, places N×k int32")
}

// WeighRowsArgs are the operands of KindWeighRows.
type WeighRowsArgs struct{ Rows, DRows, DWeights, Weights, Places Tensor }

// Put stores the operands.
func (a WeighRowsArgs) Put(o *Op) { o.operands(a.Rows, a.DRows, a.DWeights, a.Weights, a.Places) }

// WeighRows reads the operands.
func (o *Op) WeighRows() WeighRowsArgs {
	return WeighRowsArgs{Rows: o.T[0], DRows: o.T[1], DWeights: o.T[2], Weights: o.T[3], Places: o.T[4]}
}

// GroupedOpts holds the options of a product of the rows of several experts.
type GroupedOpts struct {
	TransB     bool // B holds a matrix N×K for each expert; otherwise K×N
	Accumulate bool // C += instead of C =
	BF16       bool // as MatMulOpts.BF16
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
	l.need(o, denseEither(c, a, b) && dense(Int32, offsets) && offsets.Len() >= 1 && c.Rows() == a.Rows() && b.Cols() == n &&
		b.Rows() == (offsets.Len()-1)*k, "A R×K, C R×N, B E matrices K×N or with TransB N×K, offsets E+1 int32, in float32 or bfloat16")
	l.need(o, g.BF16 || float(c, a), "an A or C of bfloat16 needs BF16")
	l.need(o, !g.Accumulate || float(c), "with Accumulate C must be float32")
}

// GroupedMatMulArgs are the operands of KindGroupedMatMul.
type GroupedMatMulArgs struct {
	C, A, B, Offsets Tensor
	GroupedOpts
}

// Put stores the operands.
func (a GroupedMatMulArgs) Put(o *Op) {
	o.operands(a.C, a.A, a.B, a.Offsets)
	o.set(FlagTransB, a.TransB)
	o.set(FlagAccumulate, a.Accumulate)
	o.set(FlagBF16, a.BF16)
}

// GroupedMatMul reads the operands.
func (o *Op) GroupedMatMul() GroupedMatMulArgs {
	return GroupedMatMulArgs{C: o.T[0], A: o.T[1], B: o.T[2], Offsets: o.T[3],
		GroupedOpts: GroupedOpts{TransB: o.Has(FlagTransB), Accumulate: o.Has(FlagAccumulate), BF16: o.Has(FlagBF16)}}
}

// GroupedWeightGrad records dweight[e] += dyᵀ·x over the rows of each expert e: dweight [E, N, K] float32, dy R×N, x R×K,
// offsets E+1 int32. It is the weight gradient of GroupedMatMul with TransB.
func (l *List) GroupedWeightGrad(dweight, dy, x, offsets Tensor, bf16 bool) {
	o := l.op(KindGroupedWeightGrad)
	GroupedWeightGradArgs{dweight, dy, x, offsets, bf16}.Put(o)
	l.need(o, dense(Float32, dweight) && denseEither(dy, x) && dense(Int32, offsets) && offsets.Len() >= 1 && dy.Rows() == x.Rows() &&
		dweight.Cols() == x.Cols() && dweight.Rows() == (offsets.Len()-1)*dy.Cols(),
		"dy R×N, x R×K, dweight E matrices N×K float32, offsets E+1 int32")
	l.need(o, bf16 || float(dy, x), "dy or x of bfloat16 needs bf16")
}

// GroupedWeightGradArgs are the operands of KindGroupedWeightGrad.
type GroupedWeightGradArgs struct {
	DWeight, DY, X, Offsets Tensor
	BF16                    bool
}

// Put stores the operands.
func (a GroupedWeightGradArgs) Put(o *Op) {
	o.operands(a.DWeight, a.DY, a.X, a.Offsets)
	o.set(FlagBF16, a.BF16)
}

// GroupedWeightGrad reads the operands.
func (o *Op) GroupedWeightGrad() GroupedWeightGradArgs {
	return GroupedWeightGradArgs{DWeight: o.T[0], DY: o.T[1], X: o.T[2], Offsets: o.T[3], BF16: o.Has(FlagBF16)}
}

// CheckOffsets returns an ErrRoute unless offsets ascend from 0 to the number of rows. Devices call it.
func CheckOffsets(offsets []int32, rows int) error {
	if offsets[0] != 0 || int(offsets[len(offsets)-1]) != rows {
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
