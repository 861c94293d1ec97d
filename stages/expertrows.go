package stages

import "github.com/troupe-ml/troupe/tensorops"

// expertrows.go has the rows of a microbatch that a rank of a tensor group routes if the ranks have whole experts (ExpertParallel.Whole):
// those of an equal range of the positions of each sequence, in the order of the ranks, as with TensorParallel.Sequence. Routers, the
// exchange of tokens and experts see no other rows. So the gradients of routers and the loads that each rank counts are parts of a sum.
//
// Other layers take the norm's output of all positions, and what they return is a part of a sum over the tensor group. Experts take and
// return the rows of their rank only: with TensorParallel.Sequence the residual stream has no others, and otherwise one gather ends the
// layer. A shared expert, which the tensor group divides as a dense part, needs all rows. Beside it the rows of the experts are this rank's
// part of the same sum, with zeros for those of the other ranks.

// wholeExperts reports whether the ranks of a tensor group have whole experts.
func (o *Options) wholeExperts() bool { return o.Experts.Whole && o.Tensor.size() > 1 }

// routesPart reports whether this rank routes a part of the rows of a microbatch that its tensor group has.
func (c *pass) routesPart() bool { return c.stage.opts.wholeExperts() }

// routedPositions returns the range of the positions of each sequence that this rank routes, of those of its tensor group.
func (c *pass) routedPositions() (from, to int) {
	t := c.tensor()
	if !c.routesPart() {
		return 0, c.mb.Positions
	}
	each := c.mb.Positions / t.size()
	return each * t.rank(), each * (t.rank() + 1)
}

// routedRows returns the number of rows that this rank routes.
func (c *pass) routedRows() int {
	from, to := c.routedPositions()
	return c.mb.Sequences * (to - from)
}

// routedRuns is runs for the positions that this rank routes.
func (c *pass) routedRuns() []run {
	if !c.routesPart() {
		return c.runs()
	}
	return c.runsIn(c.routedPositions())
}

// routed returns a copy of the rows of t that this rank routes; t itself if t has no others.
func (c *pass) routed(t tensorops.Tensor) tensorops.Tensor {
	part := c.partOf(t)
	if part != t {
		c.eachRouted(t, part, func(all, own tensorops.Tensor) { c.Copy(own, all) })
	}
	return part
}

// partOf allocates a tensor like t for the rows that this rank routes; it returns t itself if t has no others.
func (c *pass) partOf(t tensorops.Tensor) tensorops.Tensor {
	from, to := c.routedPositions()
	if !c.routesPart() || t.Valid() && t.Dim(1) == to-from {
		return t
	}
	return c.ofPositions(t, to-from)
}

// freePart frees what routed or partOf returned for t, if it is not t itself.
func (c *pass) freePart(part, t tensorops.Tensor) {
	if part != t {
		c.Free(part)
	}
}

// putPart sets the rows of t that this rank routes to those of part, which it owns, and the others to zero.
func (c *pass) putPart(t, part tensorops.Tensor) {
	if part == t {
		return
	}
	c.Fill(t, 0)
	c.eachRouted(t, part, func(all, own tensorops.Tensor) { c.Copy(all, own) })
	c.Free(part)
}

// eachRouted calls f for each sequence, with the rows that this rank routes in a tensor of all positions, and in one of its own.
func (c *pass) eachRouted(t, part tensorops.Tensor, f func(all, own tensorops.Tensor)) {
	if !t.Valid() || !part.Valid() { // after an error
		return
	}
	from, to := c.routedPositions()
	each := to - from
	for b := range c.mb.Sequences {
		first := b * c.mb.Positions
		f(t.RowRange(first+from, first+to), part.RowRange(b*each, (b+1)*each))
	}
}

// ownRows reports whether experts take and return only the rows that this rank routes.
func (f *expertFFN) ownRows(c *pass) bool { return f.shared == nil && c.routesPart() }

// positions returns the number of positions of what the layer takes and returns.
func (f *expertFFN) positions(c *pass) int {
	if !f.ownRows(c) {
		return c.mb.Positions
	}
	from, to := c.routedPositions()
	return to - from
}

// inputSum allocates a tensor for the gradient of what the layer takes, a sum of several products. x is the residual stream's.
func (f *expertFFN) inputSum(c *pass, x tensorops.Tensor) tensorops.Tensor {
	if !f.ownRows(c) || !x.Valid() {
		return c.sumOf(x, 2)
	}
	return c.Alloc(tensorops.Float32, x.Dim(0), f.positions(c), x.Cols())
}

// ownRows reports whether the layer's feed-forward part takes and returns only the rows that this rank routes.
func (b *block) ownRows(c *pass) bool {
	f, experts := b.ffn.(*expertFFN)
	return experts && f.ownRows(c)
}

// ffnRows turns a tensor of the residual stream's positions into what the feed-forward part takes. It owns t.
func (b *block) ffnRows(c *pass, t tensorops.Tensor) tensorops.Tensor {
	if !b.ownRows(c) {
		return c.gathered(t)
	}
	own := c.routed(t)
	if own != t {
		c.Free(t)
	}
	return own
}

// ffnTotal turns what the feed-forward part returns into this rank's positions of the sum over its tensor group. It owns t.
func (b *block) ffnTotal(c *pass, t tensorops.Tensor) tensorops.Tensor {
	if !b.ownRows(c) {
		return c.total(t)
	}
	return c.fromOwnRows(t)
}

// fromOwnRows turns the rows that this rank routes into the positions of the residual stream. It owns t.
func (c *pass) fromOwnRows(t tensorops.Tensor) tensorops.Tensor {
	if c.sequence() {
		return t
	}
	all := c.gather(t)
	c.Free(t)
	return all
}
