package tensorops

// DeltaOpts holds the sizes of a gated delta rule.
type DeltaOpts struct {
	Batch      int     // B sequences
	KeyHeads   int     // heads of q and k
	ValueHeads int     // heads of v: head h reads key head h / (ValueHeads/KeyHeads)
	Eps        float64 // added to the sum of squares of q and of k
}

// MaxDeltaWidth is the largest width of a head of keys or of values.
const MaxDeltaWidth = 256

// GatedDelta records the gated delta rule (Yang, Kautz, Hatamizadeh 2024, arXiv 2412.06464) for each
// sequence and each head of values. S is a matrix of Dk×Dv that begins with 0. With g = log of the decay
// and β in the columns of gates, q̂ = q/√(Σq² + eps)/√Dk and k̂ = k/√(Σk² + eps):
//
//	n[t] = v[t] − e^g[t]·S[t−1]ᵀ·k̂[t]
//	S[t] = e^g[t]·S[t−1] + β[t]·k̂[t]·n[t]ᵀ
//	o[t] = S[t]ᵀ·q̂[t]
//
// q and k are B·T rows of KeyHeads·Dk columns, v and o B·T rows of ValueHeads·Dv (views of columns are
// allowed for q, k, v). gates, which DeltaGates makes, is B·T rows of 2·ValueHeads: g of each head, then β.
// state, [B, ValueHeads, Dk, Dv] float32, may be invalid. It holds S before the first position and receives
// S after the last one.
//
// Devices work in chunks of C positions. Let G[i] be the sum of g from the chunk's first position to i,
// L[i,j] = e^(G[i]−G[j]), E[i] = e^G[i], and S the state before the chunk. With rows for positions and
// rows scaled by E and β, all of a chunk is products of matrices:
//
//	(I + A)·N = V − E·(K̂·S)        A[i,j] = β[j]·L[i,j]·(k̂[i]·k̂[j]) for j < i
//	O = E·(Q̂·S) + P·(β·N)          P[i,j] = L[i,j]·(q̂[i]·k̂[j]) for j ≤ i
//	S ← E[C]·S + Σ L[C,j]·β[j]·k̂[j]·n[j]ᵀ
func (l *List) GatedDelta(o, q, k, v, gates, state Tensor, d DeltaOpts) {
	op, s := l.op(KindGatedDelta), d.sizes(q, v)
	GatedDeltaArgs{o, q, k, v, gates, state, s}.Put(op)
	l.need(op, either(o, q, k, v) && o.Contiguous() && dense(Float32, gates) && s.fit(q, k, v, gates) && sameMatrix(o, v) &&
		optional(state, s.Batch*s.ValueHeads*s.KeyWidth*s.ValueWidth), needDelta)
}

// GatedDeltaArgs are the operands of KindGatedDelta.
type GatedDeltaArgs struct {
	O, Q, K, V, Gates, State Tensor // state may be invalid
	DeltaSizes
}

// Put stores the operands.
func (a GatedDeltaArgs) Put(o *Op) {
	o.operands(a.O, a.Q, a.K, a.V, a.Gates, a.State)
	a.putSizes(o)
}

// GatedDelta reads the operands.
func (o *Op) GatedDelta() GatedDeltaArgs {
	return GatedDeltaArgs{O: o.T[0], Q: o.T[1], K: o.T[2], V: o.T[3], Gates: o.T[4], State: o.T[5], DeltaSizes: o.deltaSizes(o.T[1], o.T[3])}
}

// GatedDeltaGrad records the gradients of GatedDelta's inputs (views of columns are allowed), for sequences
// that begin with S = 0. Nothing of the forward pass is kept: the operation computes S before each chunk
// and N again, and holds them for the heads under way, T/C·Dk·Dv + T·Dv numbers for a head of values.
// The heads of values that read a head of keys add to its gradients in ascending order.
//
// With D = β·N, and dS the gradient of the state after the chunk, a chunk's gradients are:
//
//	(I + A)ᵀ with β on the other side: R[j] = (Pᵀ·dO)[j] + L[C,j]·dSᵀ·k̂[j] − Σ L[i,j]·(k̂[i]·k̂[j])·Z[i] over i > j
//	Z = β·R, dv = Z, dβ[i] = R[i]·N[i]
//	W[i,j] = L[i,j]·(dO[i]·D[j]) for j ≤ i,  U[i,j] = −L[i,j]·(Z[i]·D[j]) for j < i
//	dq̂ = E·(dO·Sᵀ) + W·K̂
//	dk̂ = L[C]·(D·dSᵀ) − E·(Z·Sᵀ) + Wᵀ·Q̂ + (U + Uᵀ)·K̂
//	dG[i] = q̂[i]·(E·dO·Sᵀ)[i] − k̂[i]·(E·Z·Sᵀ)[i] − y[i] + Σ x[i,j] over j < i − Σ x[j,i] over j > i
//	dG[C] also gets Σ y[j] + E[C]·(S·dS), with y[j] = k̂[j]·(L[C,j]·dS·D[j])
//	x[i,j] = W[i,j]·(q̂[i]·k̂[j]) + U[i,j]·(k̂[i]·k̂[j])
//	dg[t] = Σ dG[i] over i ≥ t in the chunk
//	dS before the chunk = E[C]·dS + (E·Q̂)ᵀ·dO − (E·K̂)ᵀ·Z
//
// and through the norms, with r = 1/√(Σq² + eps): dq = r/√Dk·(dq̂ − q·r·(q·r·dq̂)), and dk in the same form
// without √Dk.
func (l *List) GatedDeltaGrad(dq, dk, dv, dgates, do, q, k, v, gates Tensor, d DeltaOpts) {
	op, s := l.op(KindGatedDeltaGrad), d.sizes(q, v)
	GatedDeltaGradArgs{dq, dk, dv, dgates, do, q, k, v, gates, s}.Put(op)
	l.need(op, either(dq, dk, dv, do, q, k, v) && do.Contiguous() && dense(Float32, gates, dgates) && s.fit(q, k, v, gates) &&
		sameMatrix(dq, q) && sameMatrix(dk, k) && sameMatrix(dv, v) && sameMatrix(do, v) && sameMatrix(dgates, gates), needDelta)
}

// GatedDeltaGradArgs are the operands of KindGatedDeltaGrad.
type GatedDeltaGradArgs struct {
	DQ, DK, DV, DGates, DO, Q, K, V, Gates Tensor
	DeltaSizes
}

// Put stores the operands.
func (a GatedDeltaGradArgs) Put(o *Op) {
	o.operands(a.DQ, a.DK, a.DV, a.DGates, a.DO, a.Q, a.K, a.V, a.Gates)
	a.putSizes(o)
}

// GatedDeltaGrad reads the operands.
func (o *Op) GatedDeltaGrad() GatedDeltaGradArgs {
	return GatedDeltaGradArgs{DQ: o.T[0], DK: o.T[1], DV: o.T[2], DGates: o.T[3], DO: o.T[4], Q: o.T[5], K: o.T[6], V: o.T[7], Gates: o.T[8],
		DeltaSizes: o.deltaSizes(o.T[5], o.T[7])}
}

// DeltaSizes holds the sizes of a gated delta rule or of its gradient, derived from the options and the
// matrices.
type DeltaSizes struct {
	Batch      int // B sequences
	Positions  int // T of a sequence
	KeyHeads   int // heads of q and k
	ValueHeads int // heads of v
	KeyWidth   int // Dk channels of a head of keys
	ValueWidth int // Dv channels of a head of values
	Eps        float64
}

// sizes returns the sizes, or zeros if the options are impossible.
func (d DeltaOpts) sizes(q, v Tensor) DeltaSizes {
	if d.Batch <= 0 || d.KeyHeads <= 0 || d.ValueHeads <= 0 {
		return DeltaSizes{}
	}
	return DeltaSizes{Batch: d.Batch, Positions: q.Rows() / d.Batch, KeyHeads: d.KeyHeads, ValueHeads: d.ValueHeads,
		KeyWidth: q.Cols() / d.KeyHeads, ValueWidth: v.Cols() / d.ValueHeads, Eps: d.Eps}
}

// Group returns the number of heads of values that read a head of keys.
func (s DeltaSizes) Group() int { return s.ValueHeads / s.KeyHeads }

// putSizes stores the sizes that do not follow from the shapes of q and v.
func (s DeltaSizes) putSizes(o *Op) {
	o.I[0], o.I[1], o.I[2], o.I[3] = s.Batch, s.Positions, s.KeyHeads, s.ValueHeads
	o.F[0] = s.Eps
}

func (o *Op) deltaSizes(q, v Tensor) DeltaSizes {
	return DeltaSizes{Batch: o.I[0], Positions: o.I[1], KeyHeads: o.I[2], ValueHeads: o.I[3], KeyWidth: q.Cols() / o.I[2],
		ValueWidth: v.Cols() / o.I[3], Eps: o.F[0]}
}

// fit reports whether the matrices have these sizes.
func (s DeltaSizes) fit(q, k, v, gates Tensor) bool {
	rows := s.Batch * s.Positions
	return s.Batch > 0 && s.ValueHeads%s.KeyHeads == 0 && q.Rows() == rows && v.Rows() == rows && gates.Rows() == rows &&
		q.Cols() == s.KeyHeads*s.KeyWidth && sameMatrix(q, k) && v.Cols() == s.ValueHeads*s.ValueWidth && gates.Cols() == 2*s.ValueHeads &&
		s.KeyWidth >= 1 && s.KeyWidth <= MaxDeltaWidth && s.ValueWidth >= 1 && s.ValueWidth <= MaxDeltaWidth && s.Eps >= 0
}

const needDelta = "q, k have B·T rows of HK·Dk and v, o B·T rows of HV·Dv, HV a multiple of HK, Dk and Dv from 1 to 256, gates B·T rows of 2·HV float32, state B·HV·Dk·Dv float32, and eps (number 0) at least 0 (sizes: B, T, HK, HV)"
