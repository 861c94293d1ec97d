package stages

import (
	"fmt"

	"github.com/troupe-ml/troupe/tensorops"
)

// block is a decoder layer: x + attention(norm(x)), then + mlp(norm(·)). Its description says which
// norms it has, how attention and the feed-forward part work, and by what factor a branch counts.
type block struct {
	spec           layerSpec // with this rank's heads
	mixer          mixer
	norm1, norm2   norm // before attention, before the feed-forward part
	after1, after2 norm // after them
	proj           linear
	up             []linear // one, or gate and up
	down           linear
	constant       use     // of the output, if the layer has one
	drops          [2]site // attention's output, the mlp's output
}

// The sites of a layer's dropout.
func blockSites(i int, p float64) (attention site, outputs [2]site) {
	at := fmt.Sprintf("layer.%d.", i)
	return site{at + "attention", p}, [2]site{{at + "projection", p}, {at + "mlp", p}}
}

// blockState holds what a backward needs. Every tensor is owned. The outputs of the norms before
// the branches and the activation are not kept: recomputing them takes one pass over memory, and a
// layer's state is a third smaller without them.
type blockState struct {
	x            tensorops.Tensor // input [B, T, C]
	stats1       tensorops.Tensor // of the first norm
	mixer        mixerState
	o            tensorops.Tensor // attention's output
	h            tensorops.Tensor // after the first residual
	stats2       tensorops.Tensor // of the second norm
	u            [2]tensorops.Tensor
	ends         [2]branchEnd     // of attention, of the mlp
	recompute    bool             // only x is kept; the backward first runs the forward again
	did          [2]bool          // weight gradients recorded: the mlp's, attention's
	didNorms     [2]bool          // the second norm's, the first's
	activated    bool             // u[0] holds the activation
	dm, du0, du1 tensorops.Tensor // gradients kept for weightGrad: mlp's output, u
	dn2, da      tensorops.Tensor // second norm's output, attention's output
	dn1          tensorops.Tensor
}

// branchEnd is what the norm after a branch keeps: its input, statistics, and the gradient of its
// output.
type branchEnd struct{ y, stats, dy tensorops.Tensor }

func (*block) symbol() byte      { return SymbolDecoder }
func (b *block) newState() state { return &blockState{mixer: b.mixer.newState()} }

func (b *block) uses() []use {
	us := append(make([]use, 0, 24), b.norm1.uses()...)
	us = append(us, b.mixer.uses()...)
	us = append(us, b.proj.uses()...)
	us = append(us, b.after1.uses()...)
	us = append(us, b.norm2.uses()...)
	for i := range b.up {
		us = append(us, b.up[i].uses()...)
	}
	us = append(us, b.down.uses()...)
	us = append(us, b.after2.uses()...)
	if b.spec.constant {
		us = append(us, b.constant)
	}
	return us
}

func (b *block) linears() []*linear {
	ms := append(b.mixer.linears(), &b.proj)
	for i := range b.up {
		ms = append(ms, &b.up[i])
	}
	return append(ms, &b.down)
}

func (s *blockState) drop(l *tensorops.List, all bool) {
	s.mixer.drop(l)
	free(l, &s.stats1, &s.o, &s.h, &s.stats2, &s.u[0], &s.u[1])
	free(l, &s.dm, &s.du0, &s.du1, &s.dn2, &s.da, &s.dn1)
	for i := range s.ends {
		free(l, &s.ends[i].y, &s.ends[i].stats, &s.ends[i].dy)
	}
	s.did, s.didNorms, s.activated = [2]bool{}, [2]bool{}, false
	if all {
		free(l, &s.x)
		s.recompute = false
	}
}

// project records the projections of x and returns their outputs.
func (c *pass) project(x tensorops.Tensor, ms []linear) (out [3]tensorops.Tensor) {
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
	s.o = b.mixer.forward(c, s.mixer, n)
	s.h = b.residual(c, &b.proj, &b.after1, &s.ends[0], s.o, x, b.drops[0])
	n, s.stats2 = b.norm2.forward(c, s.h)
	n = c.gathered(n)
	u := c.project(n, b.up)
	c.Free(n)
	s.u = [2]tensorops.Tensor{u[0], u[1]}
	g := c.AllocLike(s.u[0])
	b.activation(c, g, s.u)
	y := b.residual(c, &b.down, &b.after2, &s.ends[1], g, s.h, b.drops[1])
	b.multiply(c, y)
	c.Free(g)
	if c.mb.Recompute {
		s.drop(c.List, false)
		s.recompute = true
	}
	return y
}

// residual records skip + factor·dropout(after(m(x))).
func (b *block) residual(c *pass, m *linear, after *norm, e *branchEnd, x, skip tensorops.Tensor, s site) tensorops.Tensor {
	y := c.ofPositions(skip, c.mb.Positions)
	m.forward(c, y, x)
	y = c.total(y)
	if !after.absent {
		e.y = y
		var n tensorops.Tensor
		n, e.stats = after.forward(c, e.y)
		y = c.AllocLike(skip)
		b.sum(c, y, n, skip, s)
		c.Free(n)
		return y
	}
	b.sum(c, y, y, skip, s)
	return y
}

// multiply multiplies the layer's output, or its gradient, by the constant.
func (b *block) multiply(c *pass, t tensorops.Tensor) {
	if b.spec.constant {
		c.AddScaled(t, t, tensorops.Tensor{}, c.stage.byParam[b.constant.param.Index].constant)
	}
}

// sum records y = skip + factor·dropout(x); y may be x.
func (b *block) sum(c *pass, y, x, skip tensorops.Tensor, s site) {
	if b.spec.residual == 0 {
		c.dropout(y, x, skip, s)
		return
	}
	if c.drops(s) {
		c.dropout(y, x, tensorops.Tensor{}, s)
		x = y
	}
	c.AddScaled(y, x, skip, b.spec.residual)
}

// activation records the input of the down projection. It may overwrite u's first part.
func (b *block) activation(c *pass, g tensorops.Tensor, u [2]tensorops.Tensor) {
	if b.spec.gated {
		c.Gate(g, u[0], u[1], b.spec.act)
	} else {
		c.Act(g, u[0], b.spec.act.Act)
	}
}

// activationGrad records the gradients of u from that of the activation, whose memory it uses.
func (b *block) activationGrad(c *pass, s *blockState, dg tensorops.Tensor) {
	if b.spec.gated {
		s.du0, s.du1 = c.AllocLike(s.u[0]), dg
		c.GateGrad(s.du0, s.du1, dg, s.u[0], s.u[1], b.spec.act)
	} else {
		s.du0 = dg
		c.ActGrad(dg, dg, s.u[0], b.spec.act.Act)
	}
}

// activate recomputes the activation for the weight gradient, when u is no longer needed.
func (b *block) activate(c *pass, s *blockState) {
	if !s.activated {
		b.activation(c, s.u[0], s.u)
	}
	s.activated = true
}

// branchGrad returns the gradient of residual's projection. If that is dy itself, it must be kept,
// so the gradient of the skip needs its own memory. Otherwise the skip's gradient may use dy's
// memory.
func (b *block) branchGrad(c *pass, dy tensorops.Tensor, after *norm, e *branchEnd, s site) (projection, skip tensorops.Tensor) {
	d := dy // of the branch's output
	if c.drops(s) {
		d = c.AllocLike(dy)
		c.dropout(d, dy, tensorops.Tensor{}, s)
	}
	if b.spec.residual != 0 {
		from := d
		if !c.drops(s) {
			d = c.AllocLike(dy)
		}
		c.AddScaled(d, from, tensorops.Tensor{}, b.spec.residual)
	}
	own := c.drops(s) || b.spec.residual != 0
	switch {
	case !after.absent:
		projection, skip = c.AllocLike(dy), dy
		if after.grads(c, projection, d, e.y, e.stats, tensorops.Tensor{}) { // d isn't needed again
			if own {
				c.Free(d)
			}
			free(c.List, &e.y, &e.stats)
		} else if e.dy = d; !own {
			skip = c.AllocLike(dy)
		}
		return c.gathered(projection), skip
	case !own && c.sequence():
		return c.gather(dy), dy
	case !own:
		return dy, c.AllocLike(dy)
	}
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
	b.multiply(c, dy)
	dm, dh := b.branchGrad(c, dy, &b.after2, &s.ends[1], b.drops[1])
	s.dm = dm
	n := c.gatherAhead(&b.norm2, s.h)
	dg := c.AllocLike(s.u[0])
	b.down.inputGrad(c, dg, dm, false)
	b.activationGrad(c, s, dg)
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

	da, dx := b.branchGrad(c, dh, &b.after1, &s.ends[0], b.drops[0])
	s.da = da
	n = c.gatherAhead(&b.norm1, s.x)
	do := c.AllocLike(s.o)
	b.proj.inputGrad(c, do, da, false)
	s.dn1 = b.mixer.inputGrad(c, s.mixer, s.x, s.o, do)
	all = n.wait(c)
	s.dn1 = c.totalBeside(s.dn1, func() { b.attentionWeightGrad(c, s, all) })
	s.didNorms[1] = b.norm1.grads(c, dx, s.dn1, s.x, s.stats1, dh)
	b.mixer.afterInputGrad(c, s.mixer)
	return dx
}

func (b *block) weightGrad(c *pass, st state) {
	s := st.(*blockState)
	if !s.did[0] {
		b.mlpWeightGrad(c, s, tensorops.Tensor{}, false)
	}
	b.endGrad(c, &b.after2, &s.ends[1])
	if !s.didNorms[0] {
		b.norm2.weightGrad(c, s.dn2, s.h, s.stats2)
	}
	if !s.did[1] {
		b.attentionWeightGrad(c, s, tensorops.Tensor{})
	}
	b.endGrad(c, &b.after1, &s.ends[0])
	b.mixer.otherWeightGrad(c, s.mixer)
	if !s.didNorms[1] {
		b.norm1.weightGrad(c, s.dn1, s.x, s.stats1)
	}
	s.drop(c.List, true)
}

// endGrad records the weight gradient of a norm after a branch, unless branchGrad did.
func (b *block) endGrad(c *pass, after *norm, e *branchEnd) {
	if e.dy.Valid() {
		after.weightGrad(c, e.dy, e.y, e.stats)
	}
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
	b.mixer.weightGrad(c, s.mixer, n)
	c.Free(n)
}
