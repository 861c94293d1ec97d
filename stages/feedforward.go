package stages

import "github.com/troupe-ml/troupe/tensorops"

// feedForward is the part of a decoder layer that works on each position by itself: a dense one, or experts. It
// stands between the layer's second norm and the sum.
type feedForward interface {
	uses() []use
	linears() []*linear
	newState() feedForwardState
	// forward returns the branch's output, like skip but of all positions, from the norm's output n. It owns n. Experts may take and
	// return a part of the positions instead: see block.ownRows.
	forward(c *pass, st feedForwardState, n, skip tensorops.Tensor) (y tensorops.Tensor)
	// inputGrad returns the gradient of n, this rank's part of a sum over a tensor group, from that of the
	// output. x is the residual stream's tensor. norm recomputes n, for a part that needs it before weightGrad.
	inputGrad(c *pass, st feedForwardState, x, dy tensorops.Tensor, norm func() (n tensorops.Tensor)) (dn tensorops.Tensor)
	// weightGrad adds the weight gradients. It calls norm when it no longer needs dy, and owns n.
	weightGrad(c *pass, st feedForwardState, dy tensorops.Tensor, norm func() (n tensorops.Tensor))
}

// feedForwardState is what a feed-forward part keeps of one microbatch.
type feedForwardState interface{ drop(l *tensorops.List) }

// denseFFN is an activation between two linear layers, of which the first may be two: a gate and what it gates.
type denseFFN struct {
	spec layerSpec
	up   []linear // one, or gate and up
	down linear
}

// denseState holds what a backward needs. The activation is not kept: recomputing it takes one pass over memory.
type denseState struct {
	u         [2]tensorops.Tensor
	activated bool                // u[0] holds the activation
	du        [2]tensorops.Tensor // gradients kept for weightGrad
}

func (s *denseState) drop(l *tensorops.List) {
	free(l, &s.u[0], &s.u[1], &s.du[0], &s.du[1])
	s.activated = false
}

func (*denseFFN) newState() feedForwardState { return new(denseState) }

func (f *denseFFN) uses() (us []use) {
	for _, m := range f.linears() {
		us = append(us, m.uses()...)
	}
	return us
}

func (f *denseFFN) linears() (ms []*linear) {
	for i := range f.up {
		ms = append(ms, &f.up[i])
	}
	return append(ms, &f.down)
}

func (f *denseFFN) forward(c *pass, st feedForwardState, n, skip tensorops.Tensor) tensorops.Tensor {
	s := st.(*denseState)
	u := c.project(n, f.up)
	c.Free(n)
	s.u = [2]tensorops.Tensor{u[0], u[1]}
	g := c.AllocLike(s.u[0])
	f.activation(c, g, s.u)
	y := c.branch(&f.down, g, skip)
	c.Free(g)
	return y
}

// activation records the input of the down projection. It may overwrite u's first part.
func (f *denseFFN) activation(c *pass, g tensorops.Tensor, u [2]tensorops.Tensor) {
	if f.spec.gated {
		c.Gate(g, u[0], u[1], f.spec.act)
	} else {
		c.Act(g, u[0], f.spec.act.Act)
	}
}

// activationGrad records the gradients of u from that of the activation, whose memory it uses.
func (f *denseFFN) activationGrad(c *pass, s *denseState, dg tensorops.Tensor) {
	if f.spec.gated {
		s.du[0], s.du[1] = c.AllocLike(s.u[0]), dg
		c.GateGrad(s.du[0], s.du[1], dg, s.u[0], s.u[1], f.spec.act)
	} else {
		s.du[0] = dg
		c.ActGrad(dg, dg, s.u[0], f.spec.act.Act)
	}
}

// activate recomputes the activation for the weight gradient, when u is no longer needed.
func (f *denseFFN) activate(c *pass, s *denseState) {
	if !s.activated {
		f.activation(c, s.u[0], s.u)
	}
	s.activated = true
}

func (f *denseFFN) inputGrad(c *pass, st feedForwardState, x, dy tensorops.Tensor, _ func() tensorops.Tensor) tensorops.Tensor {
	s := st.(*denseState)
	dg := c.AllocLike(s.u[0])
	f.down.inputGrad(c, dg, dy, false)
	f.activationGrad(c, s, dg)
	if c.weightsToo { // a device may compute it together with the gradient, reading the data once
		f.activate(c, s)
	}
	dn := c.sumOf(x, len(f.up))
	for i := range f.up {
		f.up[i].inputGrad(c, dn, s.du[i], i > 0)
	}
	return dn
}

func (f *denseFFN) weightGrad(c *pass, st feedForwardState, dy tensorops.Tensor, norm func() tensorops.Tensor) {
	s := st.(*denseState)
	f.activate(c, s)
	f.down.weightGrad(c, s.u[0], dy)
	free(c.List, &s.u[0], &s.u[1])
	n := norm()
	for i := range f.up {
		f.up[i].weightGrad(c, n, s.du[i])
	}
	free(c.List, &n, &s.du[0], &s.du[1])
}
