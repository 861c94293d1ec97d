package tensorops

// DeltaGates records what GatedDelta reads as gates, from the projections a and b, N rows of H heads:
// for head h, column h of gates is g = −e^aLog[h]·softplus(a + dtBias[h]), and column H+h is β = σ(b).
// Where a document starts, g is DeltaReset.
func (l *List) DeltaGates(gates, a, b, aLog, dtBias Tensor, d DeltaGatesOpts) {
	o := l.op(KindDeltaGates)
	DeltaGatesArgs{gates, a, b, aLog, dtBias, d}.Put(o)
	l.need(o, denseEither(a, b) && dense(Float32, gates, aLog, dtBias) && gatesFit(gates, a, aLog, dtBias) && sameMatrix(b, a) && d.fit(a),
		needGates)
}

// DeltaReset is a g whose decay, e^g, is 0, so that the state begins with 0 again. What is no larger has no
// gradient.
const DeltaReset = -1e6

// DeltaGatesOpts says where documents start that share a sequence.
type DeltaGatesOpts struct {
	Batch int // B sequences; without starts it does not count
	// Starts, an int32 for each row, is where the row's document starts: row t of a sequence resets the
	// state if Starts[t] is not before t. Invalid: no row does.
	Starts Tensor
}

// Resets reports whether a row resets the state, given the number of rows of a sequence and where the row's
// document starts.
func (DeltaGatesOpts) Resets(row, positions, start int) bool { return start >= row%positions }

// fit reports whether the options are for a.
func (d DeltaGatesOpts) fit(a Tensor) bool {
	return startsFit(d.Starts, a) && (!d.Starts.Valid() || d.Batch > 0 && a.Rows()%d.Batch == 0)
}

// DeltaGatesArgs are the operands of KindDeltaGates.
type DeltaGatesArgs struct {
	Gates, A, B, ALog, DTBias Tensor
	DeltaGatesOpts
}

// Put stores the operands.
func (a DeltaGatesArgs) Put(o *Op) {
	o.operands(a.Gates, a.A, a.B, a.ALog, a.DTBias, a.Starts)
	o.I[0] = a.Batch
}

// DeltaGates reads the operands.
func (o *Op) DeltaGates() DeltaGatesArgs {
	return DeltaGatesArgs{Gates: o.T[0], A: o.T[1], B: o.T[2], ALog: o.T[3], DTBias: o.T[4],
		DeltaGatesOpts: DeltaGatesOpts{Batch: o.I[0], Starts: o.T[5]}}
}

// DeltaGatesGrad records the gradients of the projections, given gates: da = −dg·e^aLog·σ(a + dtBias) and
// db = dβ·β·(1 − β). Where g is no larger than DeltaReset, da is 0.
func (l *List) DeltaGatesGrad(da, db, dgates, gates, a, aLog, dtBias Tensor) {
	o := l.op(KindDeltaGatesGrad)
	DeltaGatesGradArgs{da, db, dgates, gates, a, aLog, dtBias}.Put(o)
	l.need(o, denseEither(da, db, a) && dense(Float32, dgates, gates, aLog, dtBias) && gatesFit(gates, a, aLog, dtBias) &&
		sameMatrix(dgates, gates) && sameMatrix(da, a) && sameMatrix(db, a), needGates)
}

// DeltaGatesGradArgs are the operands of KindDeltaGatesGrad.
type DeltaGatesGradArgs struct{ DA, DB, DGates, Gates, A, ALog, DTBias Tensor }

// Put stores the operands.
func (a DeltaGatesGradArgs) Put(o *Op) {
	o.operands(a.DA, a.DB, a.DGates, a.Gates, a.A, a.ALog, a.DTBias)
}

// DeltaGatesGrad reads the operands.
func (o *Op) DeltaGatesGrad() DeltaGatesGradArgs {
	return DeltaGatesGradArgs{DA: o.T[0], DB: o.T[1], DGates: o.T[2], Gates: o.T[3], A: o.T[4], ALog: o.T[5], DTBias: o.T[6]}
}

// DeltaGatesWeightGrad records, over the rows, daLog += Σ dg·g and ddtBias += Σ −dg·e^aLog·σ(a + dtBias),
// except those where g is at most DeltaReset.
func (l *List) DeltaGatesWeightGrad(daLog, ddtBias, dgates, gates, a, aLog, dtBias Tensor) {
	o := l.op(KindDeltaGatesWeightGrad)
	DeltaGatesWeightGradArgs{daLog, ddtBias, dgates, gates, a, aLog, dtBias}.Put(o)
	l.need(o, denseEither(a) && dense(Float32, daLog, ddtBias, dgates, gates, aLog, dtBias) && gatesFit(gates, a, aLog, dtBias) &&
		sameMatrix(dgates, gates) && daLog.Len() == a.Cols() && ddtBias.Len() == a.Cols(), needGates)
}

// DeltaGatesWeightGradArgs are the operands of KindDeltaGatesWeightGrad.
type DeltaGatesWeightGradArgs struct{ DALog, DDTBias, DGates, Gates, A, ALog, DTBias Tensor }

// Put stores the operands.
func (a DeltaGatesWeightGradArgs) Put(o *Op) {
	o.operands(a.DALog, a.DDTBias, a.DGates, a.Gates, a.A, a.ALog, a.DTBias)
}

// DeltaGatesWeightGrad reads the operands.
func (o *Op) DeltaGatesWeightGrad() DeltaGatesWeightGradArgs {
	return DeltaGatesWeightGradArgs{DALog: o.T[0], DDTBias: o.T[1], DGates: o.T[2], Gates: o.T[3], A: o.T[4], ALog: o.T[5], DTBias: o.T[6]}
}

const needGates = "a and b are N rows of H heads, gates N rows of 2·H float32, aLog and dtBias H float32, starts none or N int32 (size, with starts: B)"

// gatesFit reports whether the gates and the heads' weights fit a.
func gatesFit(gates, a, aLog, dtBias Tensor) bool {
	return gates.Rows() == a.Rows() && gates.Cols() == 2*a.Cols() && aLog.Len() == a.Cols() && dtBias.Len() == a.Cols()
}
