package tensorops

// RoPEOpts are the sizes of a rotary embedding.
type RoPEOpts struct {
	Heads   int     // the columns are Heads × D
	Period  int     // T: row n is at position First + n mod Period
	First   int     // position of a sequence's first row
	Theta   float64 // base of the wavelengths
	Inverse bool    // rotate back: the gradient
}

// RoPE records the rotary position embedding (Su et al. 2021) in place: in each
// head the pair (i, i + D/2) turns by position·Theta^(−2i/D). x may be a view of
// columns. T: x. I: heads, period, first. F: theta.
func (l *List) RoPE(x Tensor, r RoPEOpts) {
	o := l.op(KindRoPE, x)
	o.I[0], o.I[1], o.I[2], o.F[0] = r.Heads, r.Period, r.First, r.Theta
	o.set(FlagInverse, r.Inverse)
	l.need(o, float(x) && r.Heads > 0 && x.Cols()%(2*r.Heads) == 0 && r.Period > 0 && x.Rows()%r.Period == 0 && r.First >= 0 && r.Theta > 0,
		"the columns are heads of even width, the rows whole periods (sizes: heads, period, first position; number: theta)")
}

// AttentionOpts are the sizes of causal attention.
type AttentionOpts struct {
	Batch   int // B sequences
	Heads   int // H query heads; Heads % KVHeads == 0
	KVHeads int // heads of keys and values: query head h reads h / (Heads/KVHeads)
	Mask    Mask
	// BF16 allows a device to round q, k, v, do and the probabilities to bfloat16 where
	// they are multiplied. Sums and softmax stay float32.
	BF16 bool
}

// Attention records o = softmax(q·kᵀ/√D)·v for each sequence and head. q and o
// have B·Tq rows of H·D, k and v B·Tk rows of KVHeads·D (views of columns are
// allowed for q, k, v). Position i of the queries sees the keys 0..i+Tk−Tq. lse
// [B, H, Tq] receives the logarithm of each softmax's sum for the gradient.
// Dropout acts on the probabilities; the index of an element is
// ((sequence·H + head)·Tq + i)·Tk + j. The gradient recomputes the
// probabilities, so no T×T matrix outlives the operation.
// T: o, q, k, v, lse. I: B, Tq, Tk, H, KVHeads. F: P.
func (l *List) Attention(o, q, k, v, lse Tensor, a AttentionOpts) {
	op := l.op(KindAttention, o, q, k, v, lse)
	l.need(op, float(o, q, k, v, lse) && o.Contiguous() && lse.Contiguous() && a.sizes(op, q, k, v) &&
		sameMatrix(o, q) && lse.Len() == a.Heads*q.Rows(), needAttention)
}

// AttentionGrad records the gradients of q, k and v (views of columns are
// allowed). T: dq, dk, dv, do, q, k, v, o, lse. I and F as Attention.
func (l *List) AttentionGrad(dq, dk, dv, do, q, k, v, o, lse Tensor, a AttentionOpts) {
	op := l.op(KindAttentionGrad, dq, dk, dv, do, q, k, v, o, lse)
	l.need(op, float(dq, dk, dv, do, q, k, v, o, lse) && o.Contiguous() && do.Contiguous() && lse.Contiguous() && a.sizes(op, q, k, v) &&
		sameMatrix(o, q) && sameMatrix(do, q) && sameMatrix(dq, q) && sameMatrix(dk, k) && sameMatrix(dv, v) && lse.Len() == a.Heads*q.Rows(), needAttention)
}

const needAttention = "q, o have B·Tq rows of H·D and k, v B·Tk rows of KV·D, Tk ≥ Tq, H a multiple of KV (sizes: B, Tq, Tk, H, KV), lse B·H·Tq, and P (number 0) in [0, 1)"

// sizes puts the sizes into op and reports whether q, k and v have them.
func (a AttentionOpts) sizes(op *Op, q, k, v Tensor) bool {
	a.Mask.put(op)
	op.set(FlagBF16, a.BF16)
	if a.Batch <= 0 || a.Heads <= 0 || a.KVHeads <= 0 {
		return false
	}
	tq, tk, d := q.Rows()/a.Batch, k.Rows()/a.Batch, q.Cols()/a.Heads
	op.I = [6]int{a.Batch, tq, tk, a.Heads, a.KVHeads}
	return a.Heads%a.KVHeads == 0 && a.Mask.legal() && q.Rows() == a.Batch*tq && k.Rows() == a.Batch*tk && tk >= tq && d > 0 &&
		q.Cols() == a.Heads*d && k.Cols() == a.KVHeads*d && sameMatrix(k, v)
}
