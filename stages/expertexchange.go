package stages

import (
	"slices"

	"github.com/troupe-ml/troupe/tensorops"
)

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
func (s *expertState) rowOffsets() (offsets tensorops.Tensor, sources int) {
	if s.held.Valid() {
		return s.held, s.table.Rows()
	}
	return s.offsets, 0
}

// heldRows returns how many rows the experts of this rank have at most: a token chooses no expert twice.
func (f *expertFFN) heldRows(c *pass) int {
	x, alone := f.group(c)
	if alone {
		return f.pairs(c)
	}
	rows := c.routedRows()
	return min(f.spec.perToken, f.spec.count/x.size()) * (rows + (x.size()-1)*max(x.Rows, rows))
}

// exchanging are rows on their way, until end.
type exchanging struct {
	sent, came tensorops.Tensor // sent is invalid, and came complete, if nothing is on its way
	number     int              // see tensorops.List.Begin; 0: nothing is on its way
}

// begin sends rows to the ranks of their experts, or back. It owns rows.
func (f *expertFFN) begin(c *pass, s *expertState, rows tensorops.Tensor, back bool) exchanging {
	x, alone := f.group(c)
	if alone {
		return exchanging{came: rows}
	}
	n := f.heldRows(c)
	if back {
		n = f.pairs(c)
	}
	came := c.Alloc(rows.DType(), n, rows.Cols())
	group := c.times.group(x.Group, back)
	if !c.overlapsExperts() {
		c.times.end(c.List)
		c.AllToAllV(came, rows, s.table, back, group)
		c.times.begin(c.List)
		c.Free(rows)
		return exchanging{came: came}
	}
	return exchanging{rows, came, c.Begin(tensorops.CollectiveArgs{What: tensorops.AllToAllV, Dst: came, Src: rows, Table: s.table,
		Back: back, Group: group})}
}

// overlapsExperts reports whether other passes of the list compute while tokens travel.
func (c *pass) overlapsExperts() bool { return c.stage.opts.Experts.Overlap && !c.stage.opts.NoOverlap }

// end waits for exchanges. While one is under way, another pass of the list continues.
func (c *pass) end(all ...*exchanging) {
	if !slices.ContainsFunc(all, func(e *exchanging) bool { return e.number > 0 }) {
		return
	}
	c.times.end(c.List)
	c.giveWay()
	for _, e := range all {
		if e.number > 0 {
			c.AwaitOne(e.number)
			free(c.List, &e.sent)
			e.number = 0
		}
	}
	c.times.begin(c.List)
}

// beginDispatch sends the experts their rows of x, which has those that this rank routes.
func (f *expertFFN) beginDispatch(c *pass, s *expertState, x tensorops.Tensor) exchanging {
	rows := c.Alloc(c.inner(), f.pairs(c), x.Cols())
	c.Dispatch(rows, x, s.places)
	return f.begin(c, s, rows, false)
}

// beginWeights sends the ranks of the experts the weights of their rows; without a group, weigh needs none.
func (f *expertFFN) beginWeights(c *pass, s *expertState) exchanging {
	if _, alone := f.group(c); alone {
		return exchanging{}
	}
	n := f.pairs(c)
	rows := c.Alloc(tensorops.Float32, n, 1)
	c.Dispatch(rows, s.weights.View(n, 1), s.places.View(n, 1))
	return f.begin(c, s, rows, false)
}

// weigh records tensorops.List.WeighRows for the rows of this rank's experts, and sends the gradients of the weights back. It frees
// the weights, or keeps them for the gradient of a bias.
func (f *expertFFN) weigh(c *pass, s *expertState, rows, drows, weights tensorops.Tensor) exchanging {
	if _, alone := f.group(c); alone {
		dweights := c.AllocLike(s.weights)
		c.WeighRows(rows, drows, dweights, s.weights, s.places)
		return exchanging{came: dweights}
	}
	grads := c.AllocLike(weights)
	c.WeighOwnRows(rows, drows, grads, weights, s.held)
	if f.trainsOutputBias() {
		s.ofRows = weights
	} else {
		c.Free(weights)
	}
	return f.begin(c, s, grads, true)
}

// weightGrads returns the gradient of the weights of this rank's tokens from what weigh has sent, which it owns.
func (f *expertFFN) weightGrads(c *pass, s *expertState, came tensorops.Tensor) tensorops.Tensor {
	if _, alone := f.group(c); alone {
		return came
	}
	n, dweights := f.pairs(c), c.AllocLike(s.weights)
	c.Combine(dweights.View(n, 1), came, s.places.View(n, 1), tensorops.Tensor{})
	c.Free(came)
	return dweights
}

// earlyGrads is what an input gradient does of the weight gradient that follows at once: it adds the gradients of the experts'
// matrices while rows are on their way back, from rows that would travel twice otherwise. n is the norm's output.
type earlyGrads struct {
	n    tensorops.Tensor
	done bool
}

func (e *earlyGrads) drop(l *tensorops.List) {
	free(l, &e.n)
	e.done = false
}

// gradsEarly reports whether the input gradient adds the gradients of the experts' matrices.
func (f *expertFFN) gradsEarly(c *pass) bool {
	_, alone := f.group(c)
	return !alone && c.overlapsExperts() && c.weightsToo
}

// hidesBehindShared reports whether the shared expert computes while tokens travel, as Megatron-Core's moe_shared_expert_overlap. It
// reads and writes nothing that travels, and adds its gradients in the same places, so no bit changes.
func (f *expertFFN) hidesBehindShared(c *pass) bool {
	_, alone := f.group(c)
	return f.shared != nil && !alone && c.overlapsExperts()
}

// beginNorm sends the experts their rows of the norm's output, if the input gradient needs them.
func (f *expertFFN) beginNorm(c *pass, s *expertState, norm func() tensorops.Tensor) exchanging {
	if !f.gradsEarly(c) {
		return exchanging{}
	}
	s.early.n = norm()
	own := c.routed(s.early.n)
	defer c.freePart(own, s.early.n)
	return f.beginDispatch(c, s, own)
}

// addExpertGrad adds the gradient of the experts' matrices, for each source by itself.
func (c *pass) addExpertGrad(s *expertState, w use, dy, x tensorops.Tensor) {
	bf16 := c.stage.opts.BF16
	if !s.held.Valid() {
		c.GroupedWeightGrad(c.grad(w), dy, x, s.offsets, bf16)
		return
	}
	by := c.stage.byParam[w.param.Index].bySource
	for source, grad := range by {
		c.SourceWeightGrad(grad, dy, x, s.held, source, len(by), bf16)
	}
}
