package stages

import "github.com/troupe-ml/troupe/tensorops"

// expertFFN is a feed-forward part of several experts, of which a router chooses some for each position (Shazeer et
// al. 2017, arXiv 1701.06538). No position is dropped. The rows of an expert are contiguous in its products; how many
// it has is known to the device alone, so a list does not depend on it. A position's experts are added in the order of
// their numbers. All of it is computed for one microbatch, so no bit depends on the layout.
type expertFFN struct {
	spec           expertSpec
	act            tensorops.GateOpts
	router         use               // [E, C]
	gate, up, down use               // the experts' matrices one after another: [E, F, C] two times, and [E, C, F], or parts of them
	biases         *expertBiases     // nil: there are none
	adapters       [3]*expertAdapter // of gate, up and down; nil: none
	bias           use               // [E], if the router has one
	shared         *sharedExpert     // nil: none
}

// expertState holds what a backward needs. The rows that the experts read, and those that they return, are not kept.
type expertState struct {
	scores, weights, experts, places, offsets tensorops.Tensor // see tensorops.List.Route
	table, held                               tensorops.Tensor // in an expert group: see tensorops.List.SourceOffsets
	ofRows                                    tensorops.Tensor // in an expert group with biases: the weights of the experts' rows
	logits                                    tensorops.Tensor // with a z-loss
	counted                                   counted          // how the rows count in the balance: see expertcontext.go
	shared                                    *sharedState     // of the shared expert, if there is one
	u                                         [2]tensorops.Tensor
	// Kept for weightGrad: the activation times its weight, and gradients.
	activation tensorops.Tensor
	du         [2]tensorops.Tensor
	dlogits    tensorops.Tensor
	early      earlyGrads
}

func (s *expertState) drop(l *tensorops.List) {
	free(l, &s.table, &s.held, &s.ofRows, &s.scores, &s.weights, &s.experts, &s.places, &s.offsets)
	free(l, &s.u[0], &s.u[1], &s.activation, &s.du[0], &s.du[1], &s.dlogits)
	free(l, &s.logits)
	s.early.drop(l)
	s.counted.drop(l)
	if s.shared != nil {
		s.shared.drop(l)
	}
}

func (f *expertFFN) newState() feedForwardState {
	s := new(expertState)
	if f.shared != nil {
		s.shared = new(sharedState)
	}
	return s
}

func (f *expertFFN) uses() []use {
	us := append([]use{f.router, f.gate, f.up, f.down}, f.biases.uses()...)
	for _, a := range f.adapters {
		us = append(us, a.uses()...)
	}
	if f.spec.router.Bias {
		us = append(us, f.bias)
	}
	if f.shared != nil {
		us = append(us, f.shared.uses()...)
	}
	return us
}

// linears returns those of the shared expert: the matrices of the others have adapters and packed forms of another kind. The router's
// matrix is small.
func (f *expertFFN) linears() []*linear {
	if f.shared == nil {
		return nil
	}
	return f.shared.linears()
}

// pairs returns the number of pairs of a position that this rank routes and one of its experts.
func (f *expertFFN) pairs(c *pass) int { return c.routedRows() * f.spec.perToken }

// product records the product of the experts' rows x with their matrices, and their biases, to a new tensor.
func (f *expertFFN) product(c *pass, s *expertState, x tensorops.Tensor, w use, dtype tensorops.DType, out int) tensorops.Tensor {
	y := c.Alloc(dtype, f.heldRows(c), out)
	offsets, sources := s.rowOffsets()
	c.GroupedMatMul(y, x, c.weight(w), offsets, tensorops.GroupedOpts{TransB: true, BF16: c.stage.opts.BF16, Sources: sources,
		Bias: f.biasOf(c, w), Packed: c.packedExperts(w, forForward)})
	return y
}

// inputProduct records the gradient of the input of a product, or adds to it.
func (f *expertFFN) inputProduct(c *pass, dx, dy tensorops.Tensor, w use, offsets tensorops.Tensor, o tensorops.GroupedOpts) {
	o.Packed = c.packedExperts(w, forInputGrad)
	c.GroupedMatMul(dx, dy, c.weight(w), offsets, o)
}

// dispatch returns the experts' rows of x, which has all positions.
func (f *expertFFN) dispatch(c *pass, s *expertState, x tensorops.Tensor) tensorops.Tensor {
	own := c.routed(x)
	e := f.beginDispatch(c, s, own)
	c.freePart(own, x)
	c.end(&e)
	return e.came
}

// route records the choice of experts from the norm's output, for the rows that this rank routes.
func (f *expertFFN) route(c *pass, s *expertState, n tensorops.Tensor) {
	rows, k := c.routedRows(), f.spec.perToken
	s.scores, s.weights = c.Alloc(tensorops.Float32, rows, f.spec.count), c.Alloc(tensorops.Float32, rows, k)
	s.experts, s.places = c.Alloc(tensorops.Int32, rows, k), c.Alloc(tensorops.Int32, rows, k)
	s.offsets = c.Alloc(tensorops.Int32, f.spec.count+1)
	logits := s.scores
	if f.spec.zLoss != 0 && c.mb.Train {
		s.logits = c.AllocLike(s.scores)
		logits = s.logits
	}
	in := f.jittered(c, n)
	c.MatMul(logits, in, c.weight(f.router), tensorops.MatMulOpts{TransB: true, BF16: c.stage.opts.BF16, Bias: f.biasOf(c, f.router)})
	if in != n {
		c.Free(in)
	}
	c.Route(s.scores, s.weights, s.experts, s.places, s.offsets, logits, c.optional(f.bias, f.spec.router.Bias), f.spec.route(0))
	f.shareRoutes(c, s)
}

// jittered returns the router's input: n, or in training a copy with random factors.
func (f *expertFFN) jittered(c *pass, n tensorops.Tensor) tensorops.Tensor {
	if !c.drops(f.spec.jitter) {
		return n
	}
	in := c.AllocLike(n)
	c.jitter(in, n, tensorops.Tensor{}, f.spec.jitter)
	return in
}

func (f *expertFFN) forward(c *pass, st feedForwardState, n, skip tensorops.Tensor) tensorops.Tensor {
	s, width := st.(*expertState), n.Cols()
	own := c.routed(n)
	f.route(c, s, own)
	sent := f.beginDispatch(c, s, own)
	c.freePart(own, n)
	meanwhile := f.hidesBehindShared(c)
	var more tensorops.Tensor // of the shared expert
	if meanwhile {
		more = f.shared.forward(c, s.shared, n, skip)
	}
	c.end(&sent)
	rows := sent.came
	if f.shared == nil {
		c.Free(n)
	}
	s.u[0] = f.product(c, s, rows, f.gate, c.inner(), f.gate.param.Shape[1])
	s.u[1] = f.product(c, s, rows, f.up, c.inner(), f.up.param.Shape[1])
	f.adapters[ofGate].forward(c, s, s.u[0], rows)
	f.adapters[ofUp].forward(c, s, s.u[1], rows)
	c.Free(rows)
	g := c.AllocLike(s.u[0])
	c.Gate(g, s.u[0], s.u[1], f.act)
	out := f.product(c, s, g, f.down, c.inner(), width)
	f.adapters[ofDown].forward(c, s, out, g)
	c.Free(g)
	back := f.begin(c, s, out, true)
	c.end(&back)
	y := c.ofPositions(skip, f.positions(c))
	part := c.partOf(y)
	c.Combine(part, back.came, s.places, s.weights)
	c.Free(back.came)
	c.putPart(y, part)
	if f.shared != nil {
		if !meanwhile {
			more = f.shared.forward(c, s.shared, n, skip)
		}
		c.Add(y, y, more)
		c.Free(more)
	}
	return y
}

func (f *expertFFN) inputGrad(c *pass, st feedForwardState, x, dy tensorops.Tensor, norm func() tensorops.Tensor) tensorops.Tensor {
	s, o := st.(*expertState), tensorops.GroupedOpts{BF16: c.stage.opts.BF16}
	offsets, sources := s.rowOffsets()
	o.Sources = sources
	f.beginCount(c, s)
	loads := f.beginLoads(c, s)
	own := c.routed(dy)
	sent, weights, bias, ofNorm := f.beginDispatch(c, s, own), f.beginWeights(c, s), f.beginBias(c), f.beginNorm(c, s, norm)
	meanwhile := f.hidesBehindShared(c)
	if meanwhile {
		f.shared.innerGrad(c, s.shared, dy)
	}
	c.end(&sent, &weights, &bias, &ofNorm)
	rows := sent.came
	dg := c.AllocLike(s.u[0])
	f.inputProduct(c, dg, rows, f.down, offsets, o)
	f.adapters[ofDown].inputGrad(c, s, dg, rows)
	early := f.gradsEarly(c)
	if !early {
		c.Free(rows)
	}
	s.activation = c.AllocLike(s.u[0])
	c.Gate(s.activation, s.u[0], s.u[1], f.act)
	ofWeights := f.weigh(c, s, s.activation, dg, weights.came)
	s.du[0], s.du[1] = c.AllocLike(s.u[0]), dg
	c.GateGrad(s.du[0], s.du[1], dg, s.u[0], s.u[1], f.act)
	free(c.List, &s.u[0], &s.u[1])

	drows := c.Alloc(tensorops.Float32, f.heldRows(c), x.Cols())
	f.inputProduct(c, drows, s.du[0], f.gate, offsets, o)
	o.Accumulate = true
	f.inputProduct(c, drows, s.du[1], f.up, offsets, o)
	f.adapters[ofGate].inputGrad(c, s, drows, s.du[0])
	f.adapters[ofUp].inputGrad(c, s, drows, s.du[1])
	back := f.begin(c, s, drows, true)
	if early { // while they are on their way
		f.outputGrads(c, s, rows)
		f.rowGrads(c, s, ofNorm.came)
		if f.shared != nil {
			f.shared.weightGrad(c, s.shared, s.early.n, dy)
		}
		s.early.done = true
	}
	c.end(&ofWeights, &back)

	dweights := f.weightGrads(c, s, ofWeights.came)
	f.weighBias(c, s, dweights, own, bias.came)
	c.freePart(own, dy)
	s.dlogits = c.AllocLike(s.scores)
	losses, logits := c.lossesOnce(f.routeGrad(c, s), s.logits)
	c.RouteGrad(s.dlogits, dweights, s.scores, s.choices(), s.offsets, logits, losses)
	c.Free(dweights)
	f.endLoads(c, s, loads)
	dn := f.inputSum(c, x)
	part := c.partOf(dn)
	c.Combine(part, back.came, s.places, tensorops.Tensor{})
	c.Free(back.came)
	if c.drops(f.spec.jitter) {
		din := c.AllocLike(part)
		c.MatMul(din, s.dlogits, c.weight(f.router), tensorops.MatMulOpts{BF16: o.BF16})
		c.jitter(part, din, part, f.spec.jitter)
		c.Free(din)
	} else {
		c.MatMul(part, s.dlogits, c.weight(f.router), tensorops.MatMulOpts{Accumulate: true, BF16: o.BF16})
	}
	c.putPart(dn, part)
	if f.shared != nil {
		if !meanwhile {
			f.shared.innerGrad(c, s.shared, dy)
		}
		f.shared.inputGrad(c, s.shared, dn)
	}
	return dn
}

func (f *expertFFN) weightGrad(c *pass, st feedForwardState, dy tensorops.Tensor, norm func() tensorops.Tensor) {
	s := st.(*expertState)
	f.count(c, s)
	if f.trainsOutput() && !s.early.done {
		f.outputGrads(c, s, f.dispatch(c, s, dy))
	}
	free(c.List, &s.activation)
	if f.shared != nil && !s.early.done {
		f.shared.downGrad(c, s.shared, dy)
	}
	n := s.early.n
	if s.early.n = (tensorops.Tensor{}); !s.early.done {
		n = norm()
		f.rowGrads(c, s, f.dispatch(c, s, n))
	}
	if b := f.biases; b != nil {
		f.biasGrad(c, s, b.gate, s.du[0], false)
		f.biasGrad(c, s, b.up, s.du[1], false)
		if !b.router.frozen() {
			c.ColSum(c.grad(b.router), s.dlogits)
		}
	}
	if f.shared != nil && !s.early.done {
		f.shared.upGrads(c, s.shared, n)
	}
	if !f.router.frozen() {
		own := c.routed(n)
		in := f.jittered(c, own)
		c.MatMul(c.grad(f.router), s.dlogits, in, tensorops.MatMulOpts{TransA: true, Accumulate: true, BF16: c.stage.opts.BF16})
		c.freePart(in, own)
		c.freePart(own, n)
	}
	c.Free(n)
	s.drop(c.List)
}

// outputGrads adds the gradients of the last matrices of the experts from the rows of the output's gradient, which it owns.
func (f *expertFFN) outputGrads(c *pass, s *expertState, rows tensorops.Tensor) {
	if !f.trainsOutput() {
		c.Free(rows)
		return
	}
	if !f.down.frozen() {
		c.addExpertGrad(s, f.down, rows, s.activation)
	}
	if f.biases != nil {
		f.biasGrad(c, s, f.biases.down, rows, true)
	}
	f.adapters[ofDown].weightGrad(c, s, s.activation, rows)
	c.Free(rows)
}

// rowGrads adds the gradients of the first matrices from the rows of the norm's output, which it owns.
func (f *expertFFN) rowGrads(c *pass, s *expertState, rows tensorops.Tensor) {
	for i, w := range []use{f.gate, f.up} {
		if !w.frozen() {
			c.addExpertGrad(s, w, s.du[i], rows)
		}
		f.adapters[i].weightGrad(c, s, rows, s.du[i])
	}
	c.Free(rows)
}
