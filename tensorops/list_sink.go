package tensorops

// AttentionSink records that a head's sink, a learned number, joins the sum of each softmax of an
// attention that was recorded before: o ← o·σ(lse − sink), lse ← log(e^lse + e^sink). The sink has
// no value, so it takes probability from the keys (Xiao et al. 2023, arXiv 2309.17453, name the
// effect). o has B·T rows of H·D columns, lse is [B, H, T] and sinks [H]. Of the options, Batch and
// Heads count. AttentionGrad takes o and lse as they are after the sink.
func (l *List) AttentionSink(o, lse, sinks Tensor, a AttentionOpts) {
	op := l.op(KindAttentionSink)
	s := AttentionSinkArgs{O: o, LSE: lse, Sinks: sinks, SinkSizes: a.sinkSizes(o)}
	s.Put(op)
	l.need(op, either(o) && s.fit(o, lse, sinks), needSink)
}

// AttentionSinkArgs are the operands of KindAttentionSink.
type AttentionSinkArgs struct {
	O, LSE, Sinks Tensor
	SinkSizes
}

// Put stores the operands.
func (a AttentionSinkArgs) Put(o *Op) {
	o.operands(a.O, a.LSE, a.Sinks)
	a.putSizes(o)
}

// AttentionSink reads the operands.
func (o *Op) AttentionSink() AttentionSinkArgs {
	return AttentionSinkArgs{O: o.T[0], LSE: o.T[1], Sinks: o.T[2], SinkSizes: o.sinkSizes(o.T[0])}
}

// AttentionSinkGrad records that the gradients of the sinks are added to dsinks: −Σ e^(sink − lse)·(do·o)
// over sequences and queries, with o and lse as they are after the sink.
func (l *List) AttentionSinkGrad(dsinks, do, o, lse, sinks Tensor, a AttentionOpts) {
	op := l.op(KindAttentionSinkGrad)
	s := AttentionSinkGradArgs{DSinks: dsinks, DO: do, O: o, LSE: lse, Sinks: sinks, SinkSizes: a.sinkSizes(o)}
	s.Put(op)
	l.need(op, either(do, o) && s.fit(o, lse, sinks) && do.Contiguous() && sameMatrix(do, o) && dense(Float32, dsinks) &&
		dsinks.Len() == sinks.Len(), needSink)
}

// AttentionSinkGradArgs are the operands of KindAttentionSinkGrad.
type AttentionSinkGradArgs struct {
	DSinks, DO, O, LSE, Sinks Tensor
	SinkSizes
}

// Put stores the operands.
func (a AttentionSinkGradArgs) Put(o *Op) {
	o.operands(a.DSinks, a.DO, a.O, a.LSE, a.Sinks)
	a.putSizes(o)
}

// AttentionSinkGrad reads the operands.
func (o *Op) AttentionSinkGrad() AttentionSinkGradArgs {
	return AttentionSinkGradArgs{DSinks: o.T[0], DO: o.T[1], O: o.T[2], LSE: o.T[3], Sinks: o.T[4], SinkSizes: o.sinkSizes(o.T[2])}
}

const needSink = "o and do have B·T rows of H·D, lse B·H·T and sinks H (sizes: B, T, H)"

// SinkSizes holds the sizes of an attention that matter to its sinks.
type SinkSizes struct {
	Batch   int // B sequences
	Queries int // T positions of a sequence
	Heads   int // H of the queries
	Width   int // D channels of a head
}

// sinkSizes returns the sizes, or zeros if the options are impossible.
func (a AttentionOpts) sinkSizes(o Tensor) SinkSizes {
	if a.Batch <= 0 || a.Heads <= 0 {
		return SinkSizes{}
	}
	return SinkSizes{Batch: a.Batch, Queries: o.Rows() / a.Batch, Heads: a.Heads, Width: o.Cols() / a.Heads}
}

// putSizes stores the sizes that do not follow from the shape of o.
func (s SinkSizes) putSizes(o *Op) { o.I[0], o.I[1], o.I[2] = s.Batch, s.Queries, s.Heads }

func (o *Op) sinkSizes(t Tensor) SinkSizes {
	return SinkSizes{Batch: o.I[0], Queries: o.I[1], Heads: o.I[2], Width: t.Cols() / o.I[2]}
}

// fit reports whether o, lse and sinks have these sizes.
func (s SinkSizes) fit(o, lse, sinks Tensor) bool {
	return s.Batch > 0 && s.Width > 0 && o.Contiguous() && dense(Float32, lse, sinks) && o.Rows() == s.Batch*s.Queries &&
		o.Cols() == s.Heads*s.Width && lse.Len() == s.Heads*o.Rows() && sinks.Len() == s.Heads
}
