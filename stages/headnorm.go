package stages

import "github.com/troupe-ml/troupe/tensorops"

// rows returns a view of q or k with one row for each head of each position.
func (b *block) rows(t tensorops.Tensor) tensorops.Tensor {
	d := b.cfg.headDim()
	return t.View(t.Len()/d, d)
}

// normHeads returns q and k with each head normalized, in new memory, if the family does this.
// freeHeads frees them. The backward pass recomputes them.
func (b *block) normHeads(c *pass, q, k tensorops.Tensor) (nq, nk tensorops.Tensor, stats [2]tensorops.Tensor) {
	if len(b.headNorms) == 0 {
		return q, k, stats
	}
	nq, stats[0] = b.headNorms[0].forward(c, b.rows(q))
	nk, stats[1] = b.headNorms[1].forward(c, b.rows(k))
	return nq.View(q.Shape()...), nk.View(k.Shape()...), stats
}

func (b *block) freeHeads(c *pass, q, k tensorops.Tensor) {
	if len(b.headNorms) > 0 {
		free(c.List, &q, &k)
	}
}

// attentionGrad records the gradients of the projections' outputs.
func (b *block) attentionGrad(c *pass, s *blockState, do tensorops.Tensor) {
	q, k, v := b.parts(s.qkv)
	dq, dk, dv := b.parts(s.dqkv)
	if len(b.headNorms) == 0 {
		b.gradOf(c, s, dq, dk, dv, do, q, k, v)
		b.rotate(c, dq, dk, true)
		return
	}
	nq, nk, stats := b.normHeads(c, q, k)
	free(c.List, &stats[0], &stats[1])
	b.rotate(c, nq, nk, false)
	dnq, dnk := c.AllocLike(dq), c.AllocLike(dk)
	b.gradOf(c, s, dnq, dnk, dv, do, nq, nk, v)
	b.freeHeads(c, nq, nk)
	b.rotate(c, dnq, dnk, true)
	s.dheads = [2]tensorops.Tensor{b.rows(dnq), b.rows(dnk)}
	b.headNorms[0].inputGrad(c, b.rows(dq), s.dheads[0], b.rows(q), s.headStats[0], tensorops.Tensor{})
	b.headNorms[1].inputGrad(c, b.rows(dk), s.dheads[1], b.rows(k), s.headStats[1], tensorops.Tensor{})
}

// gradOf records the gradient of an attention.
func (b *block) gradOf(c *pass, s *blockState, dq, dk, dv, do, q, k, v tensorops.Tensor) {
	if c.stage.opts.Context.size() > 1 {
		b.ringGrad(c, s, dq, dk, dv, do, q, k, v)
		return
	}
	c.eachAttention(b.heads, func(first, last int, a tensorops.AttentionOpts) {
		of := sequences{first, last, c.mb.Sequences}
		c.AttentionGrad(of.rows(dq), of.rows(dk), of.rows(dv), of.rows(do), of.rows(q), of.rows(k), of.rows(v), of.rows(s.o), of.rows(s.lse), a)
	}, b.attention(c))
}
