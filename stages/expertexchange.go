package stages

import "github.com/troupe-ml/troupe/tensorops"

// expertexchange.go has what layers with experts do together in an expert group. Without a group, all of it is nothing.

// group returns the group of the pass; alone: there is none.
func (f *expertFFN) group(c *pass) (x ExpertParallel, alone bool) {
	x = c.stage.opts.Experts
	return x, x.size() == 1
}

// shareRoutes tells the ranks of the group how many tokens each has for each expert, and records where the rows of this rank's
// experts begin.
func (f *expertFFN) shareRoutes(c *pass, s *expertState) {
	x, alone := f.group(c)
	if alone {
		return
	}
	n := f.spec.count + 1
	s.table, s.held = c.Alloc(tensorops.Int32, x.size(), n), c.Alloc(tensorops.Int32, n)
	c.AllGather(s.table, s.offsets.View(1, n), 0, x.Group)
	c.SourceOffsets(s.held, s.table, x.rank())
}

// rowOffsets returns where the rows of this rank's experts begin, and how many sources divide them: see
// tensorops.GroupedOpts.Sources.
func (f *expertFFN) rowOffsets(c *pass, s *expertState) (offsets tensorops.Tensor, sources int) {
	if x, alone := f.group(c); !alone {
		return s.held, x.size()
	}
	return s.offsets, 0
}

// heldRows returns how many rows the experts of this rank have at most: a token chooses no expert twice.
func (f *expertFFN) heldRows(c *pass) int {
	x, alone := f.group(c)
	if alone {
		return f.pairs(c)
	}
	return min(f.spec.perToken, f.spec.count/x.size()) * (c.rows() + (x.size()-1)*max(x.Rows, c.rows()))
}

// toExperts sends rows to the ranks of their experts. It frees them and returns those of this rank's experts.
func (f *expertFFN) toExperts(c *pass, s *expertState, rows tensorops.Tensor) tensorops.Tensor {
	x, alone := f.group(c)
	if alone {
		return rows
	}
	return c.exchange(s, rows, f.heldRows(c), false, x.Group)
}

// fromExperts is the way back.
func (f *expertFFN) fromExperts(c *pass, s *expertState, held tensorops.Tensor) tensorops.Tensor {
	x, alone := f.group(c)
	if alone {
		return held
	}
	return c.exchange(s, held, f.pairs(c), true, x.Group)
}

// exchange sends rows by a table, or back, into n rows. It frees what it sends.
func (c *pass) exchange(s *expertState, rows tensorops.Tensor, n int, back bool, g tensorops.Group) tensorops.Tensor {
	came := c.Alloc(rows.DType(), n, rows.Cols())
	c.AllToAllV(came, rows, s.table, back, g)
	c.Free(rows)
	return came
}

// weigh records tensorops.List.WeighRows for the rows of this rank's experts, and returns the gradient of the weights of this
// rank's tokens.
func (f *expertFFN) weigh(c *pass, s *expertState, rows, drows tensorops.Tensor) (dweights tensorops.Tensor) {
	dweights = c.AllocLike(s.weights)
	if _, alone := f.group(c); alone {
		c.WeighRows(rows, drows, dweights, s.weights, s.places)
		return dweights
	}
	n := f.pairs(c)
	places := s.places.View(n, 1)
	sent := c.Alloc(tensorops.Float32, n, 1)
	c.Dispatch(sent, s.weights.View(n, 1), places)
	weights := f.toExperts(c, s, sent)
	grads := c.AllocLike(weights)
	c.WeighOwnRows(rows, drows, grads, weights, s.held)
	c.Free(weights)
	back := f.fromExperts(c, s, grads)
	c.Combine(dweights.View(n, 1), back, places, tensorops.Tensor{})
	c.Free(back)
	return dweights
}

// addWeightGrad adds the gradient of the experts' matrices, for each source by itself.
func (f *expertFFN) addWeightGrad(c *pass, s *expertState, w use, dy, x tensorops.Tensor) {
	bf16 := c.stage.opts.BF16
	if _, alone := f.group(c); alone {
		c.GroupedWeightGrad(c.grad(w), dy, x, s.offsets, bf16)
		return
	}
	by := c.stage.byParam[w.param.Index].bySource
	for source, grad := range by {
		c.SourceWeightGrad(grad, dy, x, s.held, source, len(by), bf16)
	}
}
