package stages

import "github.com/troupe-ml/troupe/tensorops"

// The norms of queries and keys. The backward pass recomputes their outputs.

// normRows returns a view of q or k with one row for each norm: a head of a position, or a position.
func (b *attentionMixer) normRows(t tensorops.Tensor) tensorops.Tensor {
	if b.spec.qkNorm == qkNormWidth {
		return t.Matrix()
	}
	d := b.spec.headDim
	return t.View(t.Len()/d, d)
}

// shared reports whether a norm covers heads that other ranks have.
func (b *attentionMixer) shared(c *pass) bool {
	return b.spec.qkNorm == qkNormWidth && c.tensor().size() > 1
}

// normQK returns q and k normalized, in new memory, if the layer does this. freeQK frees them.
func (b *attentionMixer) normQK(c *pass, q, k tensorops.Tensor) (nq, nk tensorops.Tensor, stats [2]tensorops.Tensor) {
	if len(b.qkNorms) == 0 {
		return q, k, stats
	}
	nq, stats[0] = b.normOne(c, 0, q)
	if !b.spec.shares { // which has no keys of its own
		nk, stats[1] = b.normOne(c, 1, k)
	}
	return nq, nk, stats
}

// normOne returns q (i = 0) or k (i = 1) normalized.
func (b *attentionMixer) normOne(c *pass, i int, t tensorops.Tensor) (y, stats tensorops.Tensor) {
	if !b.shared(c) {
		y, stats = b.qkNorms[i].forward(c, b.normRows(t))
		return y.View(t.Shape()...), stats
	}
	all := b.allHeads(c, i, t, true)
	n, stats := b.qkNorms[i].forward(c, all)
	y = c.AllocLike(t)
	c.Copy(y.Matrix(), b.ownHeads(c, i, n))
	free(c.List, &all, &n)
	return y, stats
}

func (b *attentionMixer) freeQK(c *pass, q, k tensorops.Tensor) {
	if len(b.qkNorms) > 0 {
		free(c.List, &q, &k)
	}
}

// attentionGrad records the gradients of the projections' outputs.
func (b *attentionMixer) attentionGrad(c *pass, s *attentionState, o, do tensorops.Tensor) {
	if b.spec.shares {
		b.sharedGrad(c, s, o, do)
		return
	}
	q, k, v := b.parts(s.qkv)
	dq, dk, dv := b.parts(s.dqkv)
	if len(b.qkNorms) == 0 {
		b.gradOf(c, s, dq, dk, dv, do, q, k, v, o)
		b.rotate(c, dq, dk, true)
		return
	}
	nq, nk, stats := b.normQK(c, q, k)
	free(c.List, &stats[0], &stats[1])
	b.rotate(c, nq, nk, false)
	nv, vStats := b.normV(c, v)
	dnq, dnk, dnv := c.AllocLike(dq), c.AllocLike(dk), dv
	if b.spec.valueNorm {
		dnv = c.AllocLike(v)
	}
	b.gradOf(c, s, dnq, dnk, dnv, do, nq, nk, nv, o)
	s.shared.addKept(c, dnk, dnv)
	b.freeQK(c, nq, nk)
	b.rotate(c, dnq, dnk, true)
	b.normGrad(c, s, 0, dq, dnq, q)
	b.normGrad(c, s, 1, dk, dnk, k)
	b.normVGrad(c, dv, dnv, v, vStats)
	b.freeV(c, nv, vStats)
}

// normV returns v with each head normalized, in new memory, if the layer does this. freeV frees it.
func (b *attentionMixer) normV(c *pass, v tensorops.Tensor) (nv, stats tensorops.Tensor) {
	if !b.spec.valueNorm {
		return v, stats
	}
	rows := b.normRows(v)
	nv, stats = c.innerLike(v), c.Alloc(tensorops.Float32, rows.Rows())
	weight := b.unitWeight(c)
	c.RMSNorm(b.normRows(nv), rows, weight, stats, b.qkNorms[1].numbers())
	c.Free(weight)
	return nv, stats
}

// unitWeight allocates the weight of a norm that has none.
func (b *attentionMixer) unitWeight(c *pass) tensorops.Tensor {
	w := c.Alloc(tensorops.Float32, b.spec.headDim)
	c.Fill(w, 1-b.spec.normOffset)
	return w
}

func (b *attentionMixer) freeV(c *pass, v, stats tensorops.Tensor) {
	if b.spec.valueNorm {
		free(c.List, &v, &stats)
	}
}

// normVGrad records the gradient of normV: dv from dnv, which it owns. If the values are keys, it adds
// to the gradient that is there.
func (b *attentionMixer) normVGrad(c *pass, dv, dnv, v, stats tensorops.Tensor) {
	if !b.spec.valueNorm {
		return
	}
	var skip tensorops.Tensor
	if b.spec.valuesAreKeys {
		skip = b.normRows(dv)
	}
	weight := b.unitWeight(c)
	c.RMSNormGrad(b.normRows(dv), b.normRows(dnv), b.normRows(v), weight, stats, skip, b.qkNorms[1].numbers())
	free(c.List, &weight, &dnv)
}

// normGrad records the gradient of normOne: dx from dy, which it owns and keeps for the weight
// gradient.
func (b *attentionMixer) normGrad(c *pass, s *attentionState, i int, dx, dy, x tensorops.Tensor) {
	if !b.shared(c) {
		s.dheads[i] = b.normRows(dy)
		b.qkNorms[i].inputGrad(c, b.normRows(dx), s.dheads[i], b.normRows(x), s.headStats[i], tensorops.Tensor{})
		return
	}
	s.whole[i], s.dheads[i] = b.allHeads(c, i, x, true), b.allHeads(c, i, dy, false)
	c.Free(dy)
	all := c.AllocLike(s.whole[i])
	b.qkNorms[i].inputGrad(c, all, s.dheads[i], s.whole[i], s.headStats[i], tensorops.Tensor{})
	c.Copy(dx.Matrix(), b.ownHeads(c, i, all))
	if !b.first(c, i) { // the first rank with these heads has their whole gradient
		c.Fill(dx, 0)
	}
	c.Free(all)
}

// copies returns how many ranks have the same heads of q (i = 0) or k (i = 1).
func (b *attentionMixer) copies(i int) int {
	if i == 0 {
		return 1
	}
	return b.kvCopies
}

// first reports whether this is the first of the ranks with the same heads.
func (b *attentionMixer) first(c *pass, i int) bool { return c.tensor().rank()%b.copies(i) == 0 }

// allHeads returns t with the heads of all ranks, a row for each position. Where several ranks have
// the same heads, their tensors are equal and one counts, or they are parts of a sum.
func (b *attentionMixer) allHeads(c *pass, i int, t tensorops.Tensor, equal bool) tensorops.Tensor {
	if !t.Valid() { // after an error
		return t
	}
	ranks := c.tensor().size() / b.copies(i)
	all := c.Alloc(t.DType(), t.Rows(), t.Cols()*ranks)
	c.Fill(all, 0)
	if !equal || b.first(c, i) {
		c.Copy(b.ownHeads(c, i, all), t.Matrix())
	}
	c.AllReduce(all, tensorops.Sum, c.tensor().Group)
	return all
}

// ownHeads returns a view of this rank's heads.
func (b *attentionMixer) ownHeads(c *pass, i int, all tensorops.Tensor) tensorops.Tensor {
	if !all.Valid() {
		return all
	}
	ranks := c.tensor().size() / b.copies(i)
	width, at := all.Cols()/ranks, c.tensor().rank()/b.copies(i)
	return all.Columns(at*width, (at+1)*width)
}
