package stages

import "github.com/troupe-ml/troupe/tensorops"

// mixer is the part of a decoder layer that lets positions see one another. It stands between the
// layer's first norm and its output projection.
type mixer interface {
	uses() []use
	linears() []*linear
	newState() mixerState
	// forward records the input of the output projection from the norm's output n, of all
	// positions. It owns n.
	forward(c *pass, st mixerState, n tensorops.Tensor) (o tensorops.Tensor)
	// inputGrad records the gradient of n, this rank's part of a sum over a tensor group, from that
	// of o, which it owns. x is the residual stream's tensor.
	inputGrad(c *pass, st mixerState, x, o, do tensorops.Tensor) (dn tensorops.Tensor)
	// weightGrad adds the gradients of the projections of n.
	weightGrad(c *pass, st mixerState, n tensorops.Tensor)
	// otherWeightGrad adds all other weight gradients.
	otherWeightGrad(c *pass, st mixerState)
	// afterInputGrad frees what no weight gradient needs.
	afterInputGrad(c *pass, st mixerState)
	// newCache allocates what the layer keeps of a sequence of up to room positions in generation.
	newCache(l *tensorops.List, dtype tensorops.DType, room int) mixerCache
	// decode is forward for the new positions of sequences: one run of c.runs for each sequence, with
	// the cache of its earlier positions. It owns n.
	decode(c *pass, caches []mixerCache, n tensorops.Tensor) (o tensorops.Tensor)
}

// mixerState is what a mixer keeps of one microbatch.
type mixerState interface{ drop(l *tensorops.List) }

// mixerCache is what a mixer keeps of a sequence in generation.
type mixerCache interface{ release() }

// attentionMixer is causal attention with grouped heads.
type attentionMixer struct {
	spec    layerSpec // with this rank's heads
	heads   int       // of the whole layer
	qkv     []linear  // one of width 3C, or three
	qkNorms []norm    // of q and of k; empty: there are none
	sinks   use       // a number for each head, if the layer has sinks
	// kvCopies is the number of ranks that have the same heads of keys and values.
	kvCopies int
	drop     site // of the probabilities

	rotations rotations
}

// attentionState holds what a backward needs. If one projection makes all of q, k and v, the first
// element owns the memory.
type attentionState struct {
	qkv       [3]tensorops.Tensor
	lse       tensorops.Tensor
	o, do     tensorops.Tensor    // attention's output, not owned, and its gradient, until the sinks' gradient is recorded
	dqkv      [3]tensorops.Tensor // gradients kept for weightGrad
	headStats [2]tensorops.Tensor // of the norms of q and k
	dheads    [2]tensorops.Tensor // gradients of their outputs
	whole     [2]tensorops.Tensor // their inputs with the heads of all ranks, if those are normalized together
	// Of a layer with an output gate: the projection to the gate, and attention's output before it.
	gate, inner tensorops.Tensor
	shared      sharedKV
}

func (s *attentionState) drop(l *tensorops.List) {
	free(l, &s.qkv[0], &s.qkv[1], &s.qkv[2], &s.lse, &s.dqkv[0], &s.dqkv[1], &s.dqkv[2])
	free(l, &s.headStats[0], &s.headStats[1], &s.dheads[0], &s.dheads[1], &s.whole[0], &s.whole[1], &s.do, &s.gate, &s.inner)
	s.shared.drop(l)
	s.o = tensorops.Tensor{}
}

func (*attentionMixer) newState() mixerState { return new(attentionState) }

func (b *attentionMixer) uses() (us []use) {
	for i := range b.qkv {
		us = append(us, b.qkv[i].uses()...)
	}
	for i := range b.qkNorms {
		us = append(us, b.qkNorms[i].uses()...)
	}
	if b.spec.sinks {
		us = append(us, b.sinks)
	}
	return us
}

func (b *attentionMixer) linears() (ms []*linear) {
	for i := range b.qkv {
		ms = append(ms, &b.qkv[i])
	}
	return ms
}

// parts returns views of q, k and v in the memory of one or three projections.
func (b *attentionMixer) parts(t [3]tensorops.Tensor) (q, k, v tensorops.Tensor) {
	switch {
	case b.spec.shares: // which has only queries
		return t[0], k, v
	case b.spec.valuesAreKeys:
		return t[0], t[1], t[1]
	}
	if len(b.qkv) == 3 || !t[0].Valid() {
		return t[0], t[1], t[2]
	}
	c := b.spec.queryWidth()
	return t[0].Columns(0, c), t[0].Columns(c, 2*c), t[0].Columns(2*c, 3*c)
}

func (b *attentionMixer) attention(c *pass) tensorops.AttentionOpts {
	a := tensorops.AttentionOpts{Batch: c.mb.Sequences, Heads: b.spec.heads, KVHeads: b.spec.kvHeads,
		Mask: c.mask(b.drop, b.heads*c.places()*c.places()), BF16: c.stage.opts.BF16, Window: b.spec.window,
		Scale: b.spec.scale, SoftCap: b.spec.softCap, Starts: c.starts}
	if a.Mask.P > 0 && c.mb.Positions != c.places() {
		a.Of = c.places()
	}
	return a
}

// rotate rotates q and k by their positions; inverse rotates back.
func (b *attentionMixer) rotate(c *pass, q, k tensorops.Tensor, inverse bool) {
	if b.spec.rope == nil {
		return
	}
	o := tensorops.RoPEOpts{Inverse: inverse}
	turn := func(rows, starts tensorops.Tensor, r run) {
		positions := c.positionsInDocument()
		if c.fed != nil { // each run is a sequence of its own
			positions = r.first + r.hi - r.lo
		}
		o.Rotation = b.rotations.of(b.spec.rope, b.spec.headDim, positions)
		o.Period, o.First, o.Starts = r.hi-r.lo, r.first, starts
		c.RoPE(rows, o)
	}
	o.Heads = b.spec.heads
	c.eachRun(q, c.starts, c.runs(), turn)
	o.Heads = b.spec.kvHeads
	c.eachRun(k, c.starts, c.runs(), turn)
}

// attended allocates attention's output.
func (b *attentionMixer) attended(c *pass) tensorops.Tensor {
	return c.Alloc(c.inner(), c.mb.Sequences, c.mb.Positions, b.spec.queryWidth())
}

func (b *attentionMixer) forward(c *pass, st mixerState, n tensorops.Tensor) tensorops.Tensor {
	s := st.(*attentionState)
	s.qkv = c.project(n, b.qkv)
	c.Free(n)
	s.qkv[0], s.gate = b.splitGate(c, s.qkv[0])
	q, k, v := b.parts(s.qkv)
	q, k, s.headStats = b.normQK(c, q, k)
	v, vStats := b.normV(c, v)
	b.rotate(c, q, k, false)
	if b.spec.shares {
		k, v = s.shared.given[0], s.shared.given[1]
	}
	o := b.attended(c)
	s.lse = c.Alloc(tensorops.Float32, c.mb.Sequences, b.spec.heads, c.mb.Positions)
	if c.stage.opts.Context.size() > 1 {
		b.ringAttention(c, s, o, q, k, v)
	} else {
		b.attend(c, o, q, k, v, s.lse)
	}
	switch {
	case b.spec.shares:
		b.freeQK(c, q, tensorops.Tensor{})
	case b.spec.keeps:
		s.shared.kept = [2]tensorops.Tensor{k, v}
		free(c.List, &q, &vStats)
	default:
		b.freeQK(c, q, k)
		b.freeV(c, v, vStats)
	}
	if b.spec.sinks {
		c.AttentionSink(o, s.lse, c.weight(b.sinks), b.sinkOpts(c))
	}
	if b.spec.outputGate {
		s.inner = o
		o = c.AllocLike(o)
		c.Gate(o, s.gate, s.inner, outputGate)
	}
	return o
}

// attend records attention over whole sequences.
func (b *attentionMixer) attend(c *pass, o, q, k, v, lse tensorops.Tensor) {
	c.eachAttention(b.heads, func(first, last int, a tensorops.AttentionOpts) {
		of := sequences{first, last, c.mb.Sequences}
		a.Starts = of.rows(a.Starts)
		c.Attention(of.rows(o), of.rows(q), of.rows(k), of.rows(v), of.rows(lse), a)
	}, b.attention(c))
}

// sinkOpts returns the sizes of the sinks' operation. The ranks of a context group have the halves
// of their positions as sequences.
func (b *attentionMixer) sinkOpts(c *pass) tensorops.AttentionOpts {
	a := tensorops.AttentionOpts{Batch: c.mb.Sequences, Heads: b.spec.heads}
	if c.stage.opts.Context.size() > 1 {
		a.Batch *= 2
	}
	return a
}

// sinkGrad adds the gradient of the sinks.
func (b *attentionMixer) sinkGrad(c *pass, s *attentionState, do tensorops.Tensor) {
	if !b.sinks.frozen() {
		c.AttentionSinkGrad(c.grad(b.sinks), do, s.o, s.lse, c.weight(b.sinks), b.sinkOpts(c))
	}
}

func (b *attentionMixer) inputGrad(c *pass, st mixerState, x, o, do tensorops.Tensor) tensorops.Tensor {
	s := st.(*attentionState)
	for i := range b.qkv {
		s.dqkv[i] = c.AllocLike(s.qkv[i])
	}
	var dgate tensorops.Tensor
	if b.spec.outputGate {
		dgate, o = c.AllocLike(s.gate), s.inner
		c.GateGrad(dgate, do, do, s.gate, s.inner, outputGate)
	}
	b.attentionGrad(c, s, o, do)
	switch {
	case b.spec.sinks && c.weightsToo:
		s.o = o
		b.sinkGrad(c, s, do)
		c.Free(do)
	case b.spec.sinks:
		s.o, s.do = o, do
	default:
		c.Free(do)
	}
	s.dqkv[0] = b.joinGate(c, s.dqkv[0], dgate)
	dn := c.sumOf(x, len(b.qkv))
	for i := range b.qkv {
		b.qkv[i].inputGrad(c, dn, s.dqkv[i], i > 0)
	}
	return dn
}

func (b *attentionMixer) weightGrad(c *pass, st mixerState, n tensorops.Tensor) {
	s := st.(*attentionState)
	for i := range b.qkv {
		b.qkv[i].weightGrad(c, n, s.dqkv[i])
	}
}

func (b *attentionMixer) otherWeightGrad(c *pass, st mixerState) {
	s := st.(*attentionState)
	if s.do.Valid() {
		b.sinkGrad(c, s, s.do)
	}
	for i := range b.qkNorms {
		x := s.whole[i]
		if !x.Valid() {
			x = b.normRows(s.qkv[i])
		}
		b.qkNorms[i].weightGrad(c, s.dheads[i], x, s.headStats[i])
	}
}

func (b *attentionMixer) afterInputGrad(c *pass, st mixerState) {
	s := st.(*attentionState)
	if len(b.qkNorms) == 0 || s.whole[0].Valid() { // else the norms need their inputs
		free(c.List, &s.qkv[0], &s.qkv[1])
	}
	free(c.List, &s.qkv[2], &s.gate)
	if !s.do.Valid() { // else the sinks' gradient needs it
		free(c.List, &s.lse, &s.inner)
	}
}

// gradOf records the gradient of an attention.
func (b *attentionMixer) gradOf(c *pass, s *attentionState, dq, dk, dv, do, q, k, v, o tensorops.Tensor) {
	if c.stage.opts.Context.size() > 1 {
		b.ringGrad(c, s, dq, dk, dv, do, q, k, v, o)
		return
	}
	c.eachAttention(b.heads, func(first, last int, a tensorops.AttentionOpts) {
		of := sequences{first, last, c.mb.Sequences}
		a.Starts = of.rows(a.Starts)
		c.AttentionGrad(of.rows(dq), of.rows(dk), of.rows(dv), of.rows(do), of.rows(q), of.rows(k), of.rows(v), of.rows(o), of.rows(s.lse), a)
	}, b.attention(c))
}
