package stages

import (
	"fmt"

	"github.com/troupe-ml/troupe/tensorops"
)

// block is a decoder layer: x + attention(norm(x)), then + mlp(norm(·)).
//
//	GPT-2: LayerNorm, one projection for q, k and v, GELU
//	Llama: RMSNorm, three projections, rotary positions, grouped heads, SwiGLU
//	Qwen 3: RMSNorm on each head of q and of k besides
type block struct {
	cfg          Config // with the heads of this rank
	rotary       bool   // rotary positions: q and k are rotated by their position
	gated        bool   // SwiGLU, else GELU
	window       int    // positions that a query attends to; 0: all
	heads        int    // of the whole layer; cfg has this rank's
	headNorms    []norm // for each head of q and of k; empty: the family has none
	norm1, norm2 norm
	qkv          []linear // one of width 3C, or three
	proj         linear
	up           []linear // one, or gate and up
	down         linear
	drops        [3]site // attention's probabilities, its output, the mlp's output
}

func blockSites(i int, p float64) [3]site {
	at := fmt.Sprintf("layer.%d.", i)
	return [3]site{{at + "attention", p}, {at + "projection", p}, {at + "mlp", p}}
}

// blockState holds what a backward needs. Every tensor is owned. If one projection makes all of q,
// k and v, or of u, the first element owns the memory. The norms' outputs and the activation are
// not kept: recomputing them takes one pass over memory, and a layer's state is a third smaller
// without them.
type blockState struct {
	x            tensorops.Tensor // input [B, T, C]
	stats1       tensorops.Tensor // of the first norm
	qkv          [3]tensorops.Tensor
	o, lse       tensorops.Tensor // attention
	h            tensorops.Tensor // after the first residual
	stats2       tensorops.Tensor // of the second norm
	u            [2]tensorops.Tensor
	recompute    bool             // only x is kept; the backward first runs the forward again
	did          [2]bool          // weight gradients recorded: the mlp's, attention's
	didNorms     [2]bool          // the second norm's, the first's
	activated    bool             // u[0] holds the activation
	dm, du0, du1 tensorops.Tensor // gradients kept for weightGrad: mlp's output, u
	dn2, da      tensorops.Tensor // second norm's output, attention's output
	dqkv         [3]tensorops.Tensor
	dn1          tensorops.Tensor
	headStats    [2]tensorops.Tensor // of the heads' norms
	dheads       [2]tensorops.Tensor // gradients of their outputs
}

func (*block) symbol() byte    { return SymbolDecoder }
func (*block) newState() state { return new(blockState) }

func (b *block) uses() []use {
	us := append(make([]use, 0, 24), b.norm1.uses()...)
	for i := range b.qkv {
		us = append(us, b.qkv[i].uses()...)
	}
	for i := range b.headNorms {
		us = append(us, b.headNorms[i].uses()...)
	}
	us = append(us, b.proj.uses()...)
	us = append(us, b.norm2.uses()...)
	for i := range b.up {
		us = append(us, b.up[i].uses()...)
	}
	return append(us, b.down.uses()...)
}

func (b *block) linears() []*linear {
	var ms []*linear
	for i := range b.qkv {
		ms = append(ms, &b.qkv[i])
	}
	ms = append(ms, &b.proj)
	for i := range b.up {
		ms = append(ms, &b.up[i])
	}
	return append(ms, &b.down)
}

func (s *blockState) drop(l *tensorops.List, all bool) {
	free(l, &s.stats1, &s.qkv[0], &s.qkv[1], &s.qkv[2], &s.o, &s.lse, &s.h, &s.stats2, &s.u[0], &s.u[1])
	free(l, &s.dm, &s.du0, &s.du1, &s.dn2, &s.da, &s.dqkv[0], &s.dqkv[1], &s.dqkv[2], &s.dn1)
	free(l, &s.headStats[0], &s.headStats[1], &s.dheads[0], &s.dheads[1])
	s.did, s.didNorms, s.activated = [2]bool{}, [2]bool{}, false
	if all {
		free(l, &s.x)
		s.recompute = false
	}
}

// parts returns views of q, k and v in the memory of one or three projections.
func (b *block) parts(t [3]tensorops.Tensor) (q, k, v tensorops.Tensor) {
	if len(b.qkv) == 3 || !t[0].Valid() {
		return t[0], t[1], t[2]
	}
	c := b.cfg.QueryWidth()
	return t[0].Columns(0, c), t[0].Columns(c, 2*c), t[0].Columns(2*c, 3*c)
}

func (b *block) attention(c *pass) tensorops.AttentionOpts {
	a := tensorops.AttentionOpts{Batch: c.mb.Sequences, Heads: b.cfg.Heads, KVHeads: b.cfg.KVHeads,
		Mask: c.mask(b.drops[0], b.heads*c.places()*c.places()), BF16: c.stage.opts.BF16, Window: b.window}
	if a.Mask.P > 0 && c.mb.Positions != c.places() {
		a.Of = c.places()
	}
	return a
}

// rotate rotates q and k by their positions; inverse rotates back.
func (b *block) rotate(c *pass, q, k tensorops.Tensor, inverse bool) {
	if !b.rotary {
		return
	}
	o := tensorops.RoPEOpts{Theta: b.cfg.RopeTheta, Scaling: b.cfg.RopeScaling.op(), Inverse: inverse}
	turn := func(rows tensorops.Tensor, r run) {
		o.Period, o.First = r.hi-r.lo, r.first
		c.RoPE(rows, o)
	}
	o.Heads = b.cfg.Heads
	c.eachRun(q, c.runs(), turn)
	o.Heads = b.cfg.KVHeads
	c.eachRun(k, c.runs(), turn)
}

// attended allocates attention's output.
func (b *block) attended(c *pass) tensorops.Tensor {
	return c.Alloc(c.inner(), c.mb.Sequences, c.mb.Positions, b.cfg.QueryWidth())
}

// project records the projections of x and returns their outputs.
func (b *block) project(c *pass, x tensorops.Tensor, ms []linear) (out [3]tensorops.Tensor) {
	for i := range ms {
		out[i] = c.Alloc(c.inner(), c.mb.Sequences, c.mb.Positions, ms[i].out)
		ms[i].forward(c, out[i], x)
	}
	return out
}

func (b *block) forward(c *pass, st state, x tensorops.Tensor) tensorops.Tensor {
	s := st.(*blockState)
	s.x = x
	var n tensorops.Tensor
	n, s.stats1 = b.norm1.forward(c, x)
	n = c.gathered(n)
	s.qkv = b.project(c, n, b.qkv)
	c.Free(n)
	q, k, v := b.parts(s.qkv)
	q, k, s.headStats = b.normHeads(c, q, k)
	b.rotate(c, q, k, false)
	s.o = b.attended(c)
	s.lse = c.Alloc(tensorops.Float32, c.mb.Sequences, b.cfg.Heads, c.mb.Positions)
	if c.stage.opts.Context.size() > 1 {
		b.ringAttention(c, s, q, k, v)
	} else {
		c.eachAttention(b.heads, func(first, last int, a tensorops.AttentionOpts) {
			of := sequences{first, last, c.mb.Sequences}
			c.Attention(of.rows(s.o), of.rows(q), of.rows(k), of.rows(v), of.rows(s.lse), a)
		}, b.attention(c))
	}
	b.freeHeads(c, q, k)
	s.h = b.residual(c, &b.proj, s.o, x, b.drops[1])
	n, s.stats2 = b.norm2.forward(c, s.h)
	n = c.gathered(n)
	u := b.project(c, n, b.up)
	c.Free(n)
	s.u = [2]tensorops.Tensor{u[0], u[1]}
	g := c.AllocLike(s.u[0])
	b.activation(c, g, s.u)
	y := b.residual(c, &b.down, g, s.h, b.drops[2])
	c.Free(g)
	if c.mb.Recompute {
		s.drop(c.List, false)
		s.recompute = true
	}
	return y
}

// residual records skip + dropout(m(x)).
func (b *block) residual(c *pass, m *linear, x, skip tensorops.Tensor, s site) tensorops.Tensor {
	y := c.ofPositions(skip, c.mb.Positions)
	m.forward(c, y, x)
	y = c.total(y)
	c.dropout(y, y, skip, s)
	return y
}

// activation records the input of the down projection. It may overwrite u's first part.
func (b *block) activation(c *pass, g tensorops.Tensor, u [2]tensorops.Tensor) {
	if b.gated {
		c.SwiGLU(g, u[0], u[1])
	} else {
		c.GELU(g, u[0])
	}
}

// activate recomputes the activation for the weight gradient, when u is no longer needed.
func (b *block) activate(c *pass, s *blockState) {
	if !s.activated {
		b.activation(c, s.u[0], s.u)
	}
	s.activated = true
}

// dropGrad returns the gradient of residual's projection. Without dropout that is dy itself, which
// must be kept, so the gradient of the skip needs its own memory. With dropout, or if the
// projection has other positions, the skip's gradient may use dy's memory.
func (b *block) dropGrad(c *pass, dy tensorops.Tensor, s site) (projection, skip tensorops.Tensor) {
	drops := c.mb.Train && s.p > 0
	switch {
	case !drops && c.sequence():
		return c.gather(dy), dy
	case !drops:
		return dy, c.AllocLike(dy)
	}
	d := c.AllocLike(dy)
	c.dropout(d, dy, tensorops.Tensor{}, s)
	return c.gathered(d), dy
}

func (b *block) inputGrad(c *pass, st state, dy tensorops.Tensor) tensorops.Tensor {
	s := st.(*blockState)
	if s.recompute {
		s.recompute = false
		again := *c.mb
		again.Recompute = false
		r := *c
		r.mb = &again
		c.Free(b.forward(&r, st, s.x))
	}
	dm, dh := b.dropGrad(c, dy, b.drops[2])
	s.dm = dm
	n := c.gatherAhead(&b.norm2, s.h)
	dg := c.AllocLike(s.u[0])
	b.down.inputGrad(c, dg, dm, false)
	if b.gated {
		s.du0, s.du1 = c.AllocLike(s.u[0]), dg
		c.SwiGLUGrad(s.du0, s.du1, dg, s.u[0], s.u[1])
	} else {
		s.du0 = dg
		c.GELUGrad(dg, dg, s.u[0])
	}
	if c.weightsToo { // a device may compute it together with the gradient, reading the data once
		b.activate(c, s)
	}
	s.dn2 = c.sumOf(s.h, len(b.up))
	b.up[0].inputGrad(c, s.dn2, s.du0, false)
	if len(b.up) > 1 {
		b.up[1].inputGrad(c, s.dn2, s.du1, true)
	}
	all := n.wait(c)
	s.dn2 = c.totalBeside(s.dn2, func() { b.mlpWeightGrad(c, s, all, true) })
	s.didNorms[0] = b.norm2.grads(c, dh, s.dn2, s.h, s.stats2, dy)

	da, dx := b.dropGrad(c, dh, b.drops[1])
	s.da = da
	n = c.gatherAhead(&b.norm1, s.x)
	do := c.AllocLike(s.o)
	b.proj.inputGrad(c, do, da, false)
	for i := range b.qkv {
		s.dqkv[i] = c.AllocLike(s.qkv[i])
	}
	b.attentionGrad(c, s, do)
	c.Free(do)
	s.dn1 = c.sumOf(s.x, len(b.qkv))
	for i := range b.qkv {
		b.qkv[i].inputGrad(c, s.dn1, s.dqkv[i], i > 0)
	}
	all = n.wait(c)
	s.dn1 = c.totalBeside(s.dn1, func() { b.attentionWeightGrad(c, s, all) })
	s.didNorms[1] = b.norm1.grads(c, dx, s.dn1, s.x, s.stats1, dh)
	if len(b.headNorms) == 0 { // the norms of the heads need their inputs
		free(c.List, &s.qkv[0], &s.qkv[1])
	}
	free(c.List, &s.qkv[2], &s.lse)
	return dx
}

func (b *block) weightGrad(c *pass, st state) {
	s := st.(*blockState)
	if !s.did[0] {
		b.mlpWeightGrad(c, s, tensorops.Tensor{}, false)
	}
	if !s.didNorms[0] {
		b.norm2.weightGrad(c, s.dn2, s.h, s.stats2)
	}
	if !s.did[1] {
		b.attentionWeightGrad(c, s, tensorops.Tensor{})
	}
	for i := range b.headNorms {
		b.headNorms[i].weightGrad(c, s.dheads[i], b.rows(s.qkv[i]), s.headStats[i])
	}
	if !s.didNorms[1] {
		b.norm1.weightGrad(c, s.dn1, s.x, s.stats1)
	}
	s.drop(c.List, true)
}

// mlpWeightGrad records the weight gradients of the projections around the activation. n is the
// second norm's output, if available. early means that the gradient of the mlp's output is still
// needed.
func (b *block) mlpWeightGrad(c *pass, s *blockState, n tensorops.Tensor, early bool) {
	s.did[0] = true
	b.activate(c, s)
	b.down.weightGrad(c, s.u[0], s.dm)
	free(c.List, &s.u[0], &s.u[1])
	if !early {
		free(c.List, &s.dm)
	}
	if !n.Valid() {
		n = c.gathered(b.norm2.recompute(c, s.h))
	}
	b.up[0].weightGrad(c, n, s.du0)
	if len(b.up) > 1 {
		b.up[1].weightGrad(c, n, s.du1)
	}
	free(c.List, &n, &s.du0, &s.du1)
}

// attentionWeightGrad records the weight gradients of the projections around attention. n is the
// first norm's output, if available.
func (b *block) attentionWeightGrad(c *pass, s *blockState, n tensorops.Tensor) {
	s.did[1] = true
	b.proj.weightGrad(c, s.o, s.da)
	if !n.Valid() {
		n = c.gathered(b.norm1.recompute(c, s.x))
	}
	for i := range b.qkv {
		b.qkv[i].weightGrad(c, n, s.dqkv[i])
	}
	c.Free(n)
}
