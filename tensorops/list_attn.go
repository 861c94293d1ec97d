package tensorops

import (
	"cmp"
	"math"
)

// AttentionOpts holds the sizes of an attention, which is causal unless Whole is set.
type AttentionOpts struct {
	Batch   int // B sequences
	Heads   int // H query heads; Heads % KVHeads == 0
	KVHeads int // heads of keys and values: query head h reads h / (Heads/KVHeads)
	// Window is the number of keys to which a query attends: the last ones of those that causality
	// allows; 0: all of them.
	Window int
	// Whole lets every query attend to every key. It is for keys that all come before the queries,
	// as in a later block of a sequence over an earlier one. Then there may be fewer keys than
	// queries, and a window needs Before.
	Whole bool
	// Before is, with Whole, the number of positions from the first key to the first query: query i
	// is at position Before+i, where key j is at position j. It lets Whole have a window, so it is
	// at least the number of keys. A query whose window has none of the keys keeps its o and lse with
	// Onto; without Onto its o is 0 and its lse −Inf.
	Before int
	// Starts, Int32 [B, Tq], hides earlier documents of a sequence: query i attends to no key before
	// Starts[i], which counts keys from the first one. A start ≤ 0 hides nothing. A query whose keys
	// are all hidden keeps its o and lse with Onto; without Onto its o is 0 and its lse −Inf. Devices
	// skip blocks of keys that no query of a block sees. Invalid: nothing is hidden.
	Starts Tensor
	// Scale is the factor of the scores; 0: 1/√D.
	Scale float64
	// SoftCap bounds the scores: a scaled score s becomes SoftCap·tanh(s/SoftCap). 0: no bound.
	SoftCap float64
	// Onto says that o and lse already hold the attention of the same queries to other keys; the
	// result covers both. The gradient is that of one block of keys, given o and lse over all keys.
	Onto bool
	Mask Mask
	// Of is the number of positions of the sequences of which q and k are blocks, for the indices
	// of Mask; 0: q and k are whole sequences.
	Of int
	// BF16 allows a device to round q, k, v, do and the probabilities to bfloat16 for products,
	// whatever their type in memory. Sums and softmax stay float32.
	BF16 bool
}

// Attention records o = softmax(cap(q·kᵀ·Scale))·v for each sequence and head. q and o have B·Tq rows of
// H·D columns, k and v have B·Tk rows of KVHeads·D (views of columns are allowed for q, k, v).
// Query i attends to the keys 0 to i+Tk−Tq, or to the last Window of them. lse, [B, H, Tq],
// receives the logarithm of each softmax's sum, for the gradient. Dropout acts on the
// probabilities. The index of an element is ((sequence·H + head)·Tq + i)·Tk + j; with Of, that
// number replaces Tq and Tk. The gradient recomputes the probabilities, so no T×T matrix outlives
// the operation.
func (l *List) Attention(o, q, k, v, lse Tensor, a AttentionOpts) {
	op, s := l.op(KindAttention), a.sizes(q, k)
	AttentionArgs{o, q, k, v, lse, a.Starts, s, a.Mask, a.BF16, a.Onto}.Put(op)
	l.need(op, either(o, q, k, v) && float(lse) && o.Contiguous() && lse.Contiguous() && s.fit(q, k, v) && a.Mask.legal() &&
		sameMatrix(o, q) && lse.Len() == a.Heads*q.Rows() && startsFit(a.Starts, q), needAttention)
}

// AttentionArgs are the operands of KindAttention.
type AttentionArgs struct {
	O, Q, K, V, LSE, Starts Tensor
	AttentionSizes
	Mask Mask
	BF16 bool
	Onto bool
}

// Put stores the operands.
func (a AttentionArgs) Put(o *Op) {
	o.operands(a.O, a.Q, a.K, a.V, a.LSE, a.Starts)
	o.set(FlagAccumulate, a.Onto)
	a.putSizes(o)
	a.Mask.Put(o)
	o.set(FlagBF16, a.BF16)
}

// Attention reads the operands.
func (o *Op) Attention() AttentionArgs {
	return AttentionArgs{O: o.T[0], Q: o.T[1], K: o.T[2], V: o.T[3], LSE: o.T[4], Starts: o.T[5],
		AttentionSizes: o.attentionSizes(o.T[1]), Mask: o.Mask(), BF16: o.Has(FlagBF16), Onto: o.Has(FlagAccumulate)}
}

// AttentionGrad records the gradients of q, k and v (views of columns are allowed).
func (l *List) AttentionGrad(dq, dk, dv, do, q, k, v, o, lse Tensor, a AttentionOpts) {
	op, s := l.op(KindAttentionGrad), a.sizes(q, k)
	AttentionGradArgs{dq, dk, dv, do, q, k, v, o, lse, a.Starts, s, a.Mask, a.BF16}.Put(op)
	l.need(op, either(dq, dk, dv, do, q, k, v, o) && float(lse) && o.Contiguous() && do.Contiguous() && lse.Contiguous() && s.fit(q, k, v) &&
		a.Mask.legal() &&
		sameMatrix(o, q) && sameMatrix(do, q) && sameMatrix(dq, q) && sameMatrix(dk, k) && sameMatrix(dv, v) && lse.Len() == a.Heads*q.Rows() &&
		startsFit(a.Starts, q), needAttention)
}

// AttentionGradArgs are the operands of KindAttentionGrad.
type AttentionGradArgs struct {
	DQ, DK, DV, DO, Q, K, V, O, LSE, Starts Tensor
	AttentionSizes
	Mask Mask
	BF16 bool
}

// Put stores the operands.
func (a AttentionGradArgs) Put(o *Op) {
	o.operands(a.DQ, a.DK, a.DV, a.DO, a.Q, a.K, a.V, a.O, a.LSE, a.Starts)
	a.putSizes(o)
	a.Mask.Put(o)
	o.set(FlagBF16, a.BF16)
}

// AttentionGrad reads the operands.
func (o *Op) AttentionGrad() AttentionGradArgs {
	return AttentionGradArgs{DQ: o.T[0], DK: o.T[1], DV: o.T[2], DO: o.T[3], Q: o.T[4], K: o.T[5], V: o.T[6], O: o.T[7], LSE: o.T[8],
		Starts:         o.T[9],
		AttentionSizes: o.attentionSizes(o.T[4]), Mask: o.Mask(), BF16: o.Has(FlagBF16)}
}

const needAttention = "q, o have B·Tq rows of H·D and k, v B·Tk rows of KV·D, Tk ≥ Tq unless whole, H a multiple of KV (sizes: B, Tq, Tk, H, KV, window, positions that they are of, none or no fewer than Tq and Tk, and positions before the queries, only if whole, at most 2³¹−1 and no fewer than Tk if there is a window), lse B·H·Tq, starts none or int32 B·Tq, P (number 0) in [0, 1), and scale and soft cap (numbers 1 and 2) 0 or positive, their quotient a float32"

// AttentionSizes holds the sizes of an attention or of its gradient, derived from the options and
// the matrices, and the two numbers that its scores depend on.
type AttentionSizes struct {
	Batch   int     // B sequences
	Queries int     // Tq positions of a sequence
	Keys    int     // Tk positions of a sequence
	Heads   int     // H of the queries
	KVHeads int     // heads of keys and values
	Width   int     // D channels of a head
	Window  int     // largest number of keys to which a query attends; 0: all up to its own position
	Whole   bool    // every query attends to every key, or to those of its window
	Of      int     // positions of the sequences of which q and k are blocks; 0: whole sequences
	Before  int     // if Whole, position of the first query, where the first key has position 0
	Scale   float64 // factor of the scores; 0: 1/√D
	SoftCap float64 // bound of the scores; 0: none
}

// sizes returns the sizes, or zeros if the options are impossible.
func (a AttentionOpts) sizes(q, k Tensor) AttentionSizes {
	if a.Batch <= 0 || a.Heads <= 0 || a.KVHeads <= 0 {
		return AttentionSizes{}
	}
	return AttentionSizes{
		Batch: a.Batch, Queries: q.Rows() / a.Batch, Keys: k.Rows() / a.Batch,
		Heads: a.Heads, KVHeads: a.KVHeads, Width: q.Cols() / a.Heads, Window: a.Window, Whole: a.Whole, Of: a.Of,
		Before: a.Before, Scale: a.Scale, SoftCap: a.SoftCap,
	}
}

// Factor returns the factor of the scores.
func (s AttentionSizes) Factor() float64 { return cmp.Or(s.Scale, 1/math.Sqrt(float64(s.Width))) }

// Offset returns the position of the first query, where the first key has position 0: query i attends
// to keys up to position Offset+i.
func (s AttentionSizes) Offset() int {
	if s.Whole {
		return max(s.Before, s.Keys)
	}
	return s.Keys - s.Queries
}

// Seen returns the keys to which a query attends, if no Starts hide some. With a window and Whole
// there may be none.
func (s AttentionSizes) Seen(query int) (first, end int) {
	end = min(query+s.Offset()+1, s.Keys)
	if s.Window > 0 {
		first = min(max(0, query+s.Offset()+1-s.Window), end)
	}
	return first, end
}

// MaskIndex returns the index of an element in the mask, relative to the mask's First. head counts
// the heads of all sequences.
func (s AttentionSizes) MaskIndex(head, query, key int) uint64 {
	queries, keys := s.Queries, s.Keys
	if s.Of > 0 {
		queries, keys = s.Of, s.Of
	}
	return (uint64(head)*uint64(queries)+uint64(query))*uint64(keys) + uint64(key)
}

// startsFit reports whether starts are none, or an int32 for each row of x.
func startsFit(starts, x Tensor) bool {
	return !starts.Valid() || dense(Int32, starts) && starts.Len() == x.Rows()
}

// Group returns the number of query heads that share a head of keys and values.
func (s AttentionSizes) Group() int { return s.Heads / s.KVHeads }

// putSizes stores the sizes that do not follow from the shape of q.
func (s AttentionSizes) putSizes(o *Op) {
	o.I = [8]int{s.Batch, s.Queries, s.Keys, s.Heads, s.KVHeads, s.Window, s.Of, s.Before}
	o.F[1], o.F[2] = s.Scale, s.SoftCap
	o.set(FlagWhole, s.Whole)
}

func (o *Op) attentionSizes(q Tensor) AttentionSizes {
	return AttentionSizes{Batch: o.I[0], Queries: o.I[1], Keys: o.I[2], Heads: o.I[3], KVHeads: o.I[4], Width: q.Cols() / o.I[3],
		Window: o.I[5], Whole: o.Has(FlagWhole), Of: o.I[6], Before: o.I[7], Scale: o.F[1], SoftCap: o.F[2]}
}

// sees reports whether each query attends to at least one key, or may attend to none.
func (s AttentionSizes) sees() bool {
	if s.Whole {
		return (s.Window == 0 || s.Before >= s.Keys) && s.Before >= 0 && s.Before <= math.MaxInt32 && (s.Keys > 0 || s.Queries == 0)
	}
	return s.Before == 0 && s.Keys >= s.Queries
}

// scores reports whether the factor and the bound of the scores are possible. Devices compute with them, and divide one by
// the other, in float32.
func (s AttentionSizes) scores() bool {
	scale := s.Scale >= 0 && s.Scale <= math.MaxFloat32 && float32(s.Factor()) > 0
	return scale && (s.SoftCap == 0 || s.SoftCap > 0 && s.SoftCap <= math.MaxFloat32 && s.Factor()/s.SoftCap <= math.MaxFloat32)
}

// fit reports whether q, k and v have these sizes.
func (s AttentionSizes) fit(q, k, v Tensor) bool {
	return s.Batch > 0 && s.Heads%s.KVHeads == 0 && q.Rows() == s.Batch*s.Queries && k.Rows() == s.Batch*s.Keys && s.sees() && s.Width > 0 &&
		s.scores() && s.Window >= 0 && (s.Of == 0 || s.Of >= max(s.Queries, s.Keys)) &&
		q.Cols() == s.Heads*s.Width && k.Cols() == s.KVHeads*s.Width && sameMatrix(k, v)
}
