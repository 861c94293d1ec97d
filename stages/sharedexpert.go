package stages

import "github.com/troupe-ml/troupe/tensorops"

// sharedExpert is the expert of a layer that computes every position (Dai et al. 2024, arXiv 2401.06066): a dense feed-forward part,
// whose output may be multiplied by σ of a linear function of the position (Qwen 2 with experts).
type sharedExpert struct {
	denseFFN
	gate    linear // [1, C]
	isGated bool
}

// sharedState is what a backward needs besides a dense part's.
type sharedState struct {
	denseState
	gate, dgate tensorops.Tensor // [N, 1]: the gate before σ, and its gradient
	gated       tensorops.Tensor // the gated activation, for the gradient of the last matrix
}

func (s *sharedState) drop(l *tensorops.List) {
	s.denseState.drop(l)
	free(l, &s.gate, &s.dgate, &s.gated)
}

func (f *sharedExpert) uses() []use {
	us := f.denseFFN.uses()
	if f.isGated {
		us = append(us, f.gate.uses()...)
	}
	return us
}

// linears returns also the gate, which a file has as a linear layer.
func (f *sharedExpert) linears() []*linear {
	ms := f.denseFFN.linears()
	if f.isGated {
		ms = append(ms, &f.gate)
	}
	return ms
}

// sharedExpert adds a layer's shared expert.
func (f *decoder) sharedExpert(m *Model, spec layerSpec, at string) *sharedExpert {
	x, n := spec.experts, f.names.experts
	layer := at
	at += n.shared + "."
	dense := spec
	dense.ffn, dense.gated, dense.experts = x.sharedWidth, true, expertSpec{}
	s := &sharedExpert{isGated: x.sharedGate}
	s.spec = dense
	s.up = []linear{f.column(m, at+n.gate, false, x.sharedWidth, x.sharedWidth), f.column(m, at+n.up, false, x.sharedWidth, x.sharedWidth)}
	s.down = f.row(m, at+n.down, false, x.sharedWidth, x.sharedWidth)
	if s.isGated { // every rank of a tensor group computes the gate, and has a part of its gradient
		s.gate = f.whole(m, layer+n.sharedGate, normalInit, false, m.Config.Hidden, 1)
		s.gate.w = parted(s.gate.w, byHeads)
	}
	return s
}

// forward returns the expert's output, like skip but of all positions. It owns n.
func (f *sharedExpert) forward(c *pass, s *sharedState, n, skip tensorops.Tensor) tensorops.Tensor {
	u := c.project(n, f.up)
	if f.isGated {
		s.gate = c.Alloc(tensorops.Float32, c.rows(), 1)
		f.gate.forward(c, s.gate, n)
	}
	c.Free(n)
	s.u = [2]tensorops.Tensor{u[0], u[1]}
	g := c.AllocLike(s.u[0])
	f.activation(c, g, s.u)
	f.gateRows(c, g, s)
	y := c.branch(&f.down, g, skip)
	c.Free(g)
	return y
}

// gateRows multiplies the activation by the gate. The last matrix is linear, so that is the same as to multiply the output.
func (f *sharedExpert) gateRows(c *pass, g tensorops.Tensor, s *sharedState) {
	if f.isGated {
		c.RowGate(g, g, s.gate)
	}
}

// innerGrad makes the gradients of what the first matrices and the gate return.
func (f *sharedExpert) innerGrad(c *pass, s *sharedState, dy tensorops.Tensor) {
	dg := c.AllocLike(s.u[0])
	f.down.inputGrad(c, dg, dy, false)
	if f.isGated {
		s.gated, s.dgate = c.AllocLike(s.u[0]), c.AllocLike(s.gate)
		f.activation(c, s.gated, s.u)
		c.RowGateGrad(dg, s.dgate, dg, s.gated, s.gate)
		c.RowGate(s.gated, s.gated, s.gate)
	}
	f.activationGrad(c, &s.denseState, dg)
}

// inputGrad adds the gradient of n to dn, after innerGrad.
func (f *sharedExpert) inputGrad(c *pass, s *sharedState, dn tensorops.Tensor) {
	for i := range f.up {
		f.up[i].inputGrad(c, dn, s.du[i], true)
	}
	if f.isGated {
		f.gate.inputGrad(c, dn, s.dgate, true)
	}
}

// weightGrad adds the gradients of the matrices, after innerGrad.
func (f *sharedExpert) weightGrad(c *pass, s *sharedState, n, dy tensorops.Tensor) {
	f.downGrad(c, s, dy)
	f.upGrads(c, s, n)
}

// downGrad adds the gradient of the last matrix.
func (f *sharedExpert) downGrad(c *pass, s *sharedState, dy tensorops.Tensor) {
	if !f.isGated {
		f.activate(c, &s.denseState)
		s.gated, s.u[0] = s.u[0], tensorops.Tensor{}
	}
	f.down.weightGrad(c, s.gated, dy)
	free(c.List, &s.u[0], &s.u[1], &s.gated)
}

// upGrads adds the other gradients.
func (f *sharedExpert) upGrads(c *pass, s *sharedState, n tensorops.Tensor) {
	for i := range f.up {
		f.up[i].weightGrad(c, n, s.du[i])
	}
	if f.isGated {
		f.gate.weightGrad(c, n, s.dgate)
	}
}
