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
	ffn            feedForward
	input          *inputBranch // of the layer's own input; nil: it has none
	carries        *carrying    // what travels behind the residual stream; nil: nothing
	constant       use          // of the output, if the layer has one
	drops          [2]site      // attention's output, the mlp's output
}

// The sites of a layer's dropout.
func blockSites(i int, p float64) (attention site, outputs [2]site) {
	at := fmt.Sprintf("layer.%d.", i)
	return site{at + "attention", p}, [2]site{{at + "projection", p}, {at + "mlp", p}}
}

// blockState holds what a backward needs. Every tensor is owned. The outputs of the norms before
// the branches are not kept: recomputing them takes one pass over memory.
type blockState struct {
	x         tensorops.Tensor // input [B, T, C]
	stats1    tensorops.Tensor // of the first norm
	mixer     mixerState
	o         tensorops.Tensor // attention's output
	h         tensorops.Tensor // after the first residual
	stats2    tensorops.Tensor // of the second norm
	ffn       feedForwardState
	ends      [2]branchEnd // of attention, of the feed-forward part
	input     inputState   // of the branch of the layer's own input
	carried   carriedState
	recompute bool             // only x and carried are kept; the backward first runs the forward again
	did       [2]bool          // weight gradients recorded: the feed-forward part's, attention's
	didNorms  [2]bool          // the second norm's, the first's
	dm        tensorops.Tensor // gradients kept for weightGrad: the feed-forward part's output
	dn2, da   tensorops.Tensor // second norm's output, attention's output
	dn1       tensorops.Tensor
}

// branchEnd is what the norm after a branch keeps: its input, statistics, and the gradient of its
// output.
type branchEnd struct{ y, stats, dy tensorops.Tensor }

func (*block) symbol() byte { return SymbolDecoder }
func (b *block) newState() state {
	return &blockState{mixer: b.mixer.newState(), ffn: b.ffn.newState()}
}

func (b *block) uses() []use {
	us := append(make([]use, 0, 24), b.norm1.uses()...)
	us = append(us, b.mixer.uses()...)
	us = append(us, b.proj.uses()...)
	us = append(us, b.after1.uses()...)
	us = append(us, b.norm2.uses()...)
	us = append(us, b.ffn.uses()...)
	us = append(us, b.after2.uses()...)
	if b.input != nil {
		us = append(us, b.input.uses()...)
	}
	if b.spec.constant {
		us = append(us, b.constant)
	}
	return us
}

func (b *block) linears() []*linear {
	ms := append(append(b.mixer.linears(), &b.proj), b.ffn.linears()...)
	if b.input != nil {
		ms = append(ms, &b.input.gate, &b.input.proj)
	}
	return ms
}

func (s *blockState) drop(l *tensorops.List, all bool) {
	s.mixer.drop(l)
	free(l, &s.stats1, &s.o, &s.h, &s.stats2)
	s.ffn.drop(l)
	free(l, &s.dm, &s.dn2, &s.da, &s.dn1)
	for i := range s.ends {
		free(l, &s.ends[i].y, &s.ends[i].stats, &s.ends[i].dy)
	}
	s.input.drop(l)
	s.carried.drop(l, all)
	s.did, s.didNorms = [2]bool{}, [2]bool{}
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

func (b *block) forward(c *pass, st state, x tensorops.Tensor) (y tensorops.Tensor) {
	s := st.(*blockState)
	if b.carries != nil {
		y = b.carries.forward(c, b, s, x)
	} else {
		y = b.layer(c, s, x)
	}
	if c.mb.Recompute {
		s.drop(c.List, false)
		s.recompute = true
	}
	return y
}

// layer records the layer without what travels behind the residual stream.
func (b *block) layer(c *pass, s *blockState, x tensorops.Tensor) tensorops.Tensor {
	s.x = x
	b.give(s)
	var n tensorops.Tensor
	n, s.stats1 = b.norm1.forward(c, x)
	n = c.gathered(n)
	s.o = b.mixer.forward(c, s.mixer, n)
	s.h = b.residual(c, c.branch(&b.proj, s.o, x), &b.after1, &s.ends[0], x, b.drops[0])
	n, s.stats2 = b.norm2.forward(c, s.h)
	n = b.ffnRows(c, n)
	y := b.add(c, b.ffnTotal(c, b.ffn.forward(c, s.ffn, n, s.h)), &b.after2, &s.ends[1], s.h, b.drops[1])
	if b.input != nil {
		y = b.input.forward(c, b, &s.input, s.carried.input, y)
	}
	b.multiply(c, y)
	return y
}

// branch returns the output of a branch from its last linear layer, like skip but of all positions: this rank's part
// of a sum over a tensor group.
func (c *pass) branch(m *linear, x, skip tensorops.Tensor) tensorops.Tensor {
	y := c.ofPositions(skip, c.mb.Positions)
	m.forward(c, y, x)
	return y
}

// residual records skip + factor·dropout(after(y)). It owns y, a branch's output.
func (b *block) residual(c *pass, y tensorops.Tensor, after *norm, e *branchEnd, skip tensorops.Tensor, s site) tensorops.Tensor {
	return b.add(c, c.total(y), after, e, skip, s)
}

// add is residual for an output that the ranks of a tensor group have added.
func (b *block) add(c *pass, y tensorops.Tensor, after *norm, e *branchEnd, skip tensorops.Tensor, s site) tensorops.Tensor {
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

// branchGrad returns the gradient of residual's projection. If that is dy itself, it must be kept,
// so the gradient of the skip needs its own memory. Otherwise the skip's gradient may use dy's
// memory. all: the projection's has all positions, otherwise those of dy.
func (b *block) branchGrad(c *pass, dy tensorops.Tensor, after *norm, e *branchEnd, s site, all bool) (projection, skip tensorops.Tensor) {
	gathered := func(t tensorops.Tensor) tensorops.Tensor {
		if !all {
			return t
		}
		return c.gathered(t)
	}
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
		return gathered(projection), skip
	case !own && all && c.sequence():
		return c.gather(dy), dy
	case !own:
		return dy, c.AllocLike(dy)
	}
	return gathered(d), dy
}

func (b *block) inputGrad(c *pass, st state, dy tensorops.Tensor) tensorops.Tensor {
	s := st.(*blockState)
	if s.recompute {
		s.recompute = false
		again := *c.mb
		again.Recompute = false
		r := *c
		r.mb = &again
		c.Free(b.layer(&r, s, s.x))
		s.dropKept(c.List)
	}
	if b.carries != nil {
		return b.carries.inputGrad(c, b, s, dy)
	}
	return b.layerGrad(c, s, dy)
}

// layerGrad records the gradient of layer's input from that of its output, which it owns.
func (b *block) layerGrad(c *pass, s *blockState, dy tensorops.Tensor) tensorops.Tensor {
	b.multiply(c, dy)
	if b.input != nil {
		dy, s.carried.dinput = b.input.inputGrad(c, b, &s.input, s.carried.input, dy)
	}
	own := b.ownRows(c)
	dm, dh := b.branchGrad(c, dy, &b.after2, &s.ends[1], b.drops[1], !own)
	s.dm = dm
	var n ahead
	if !own {
		n = c.gatherAhead(&b.norm2, s.h)
	}
	s.dn2 = b.ffn.inputGrad(c, s.ffn, s.h, dm, func() tensorops.Tensor {
		if all := n.wait(c); all.Valid() { // experts may need it sooner
			n = ahead{}
			return all
		}
		return b.ffnRows(c, b.norm2.recompute(c, s.h))
	})
	all := n.wait(c)
	if own {
		s.dn2 = c.fromOwnRows(s.dn2)
	} else {
		s.dn2 = c.totalBeside(s.dn2, func() { b.ffnWeightGrad(c, s, all, true) })
	}
	s.didNorms[0] = b.norm2.grads(c, dh, s.dn2, s.h, s.stats2, dy)

	da, dx := b.branchGrad(c, dh, &b.after1, &s.ends[0], b.drops[0], true)
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
	if b.input != nil {
		b.input.weightGrad(c, b, &s.input, s.carried.input)
	}
	if !s.did[0] {
		b.ffnWeightGrad(c, s, tensorops.Tensor{}, false)
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

// ffnWeightGrad records the weight gradients of the feed-forward part. n is the second norm's output, if available.
// early means that the gradient of the part's output is still needed.
func (b *block) ffnWeightGrad(c *pass, s *blockState, n tensorops.Tensor, early bool) {
	s.did[0] = true
	b.ffn.weightGrad(c, s.ffn, s.dm, func() tensorops.Tensor {
		if !early {
			free(c.List, &s.dm)
		}
		if !n.Valid() {
			n = b.ffnRows(c, b.norm2.recompute(c, s.h))
		}
		return n
	})
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
