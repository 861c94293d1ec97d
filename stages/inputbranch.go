package stages

import (
	"fmt"

	"github.com/troupe-ml/troupe/tensorops"
)

// inputBranch is a decoder layer's third branch, after the feed-forward part. It adds what the layer makes of its own input:
//
//	x + after(projection(act(gate(x))·input))
type inputBranch struct {
	gate, proj linear
	after      norm
	act        tensorops.GateOpts
	drop       site // of the branch's output
}

// inputState holds what a backward needs.
type inputState struct {
	x   tensorops.Tensor // the residual stream before the branch
	u   tensorops.Tensor // the gate before its activation
	end branchEnd
	du  tensorops.Tensor // gradients kept for weightGrad: of u, of the projection's output
	dz  tensorops.Tensor
}

func (s *inputState) drop(l *tensorops.List) {
	free(l, &s.x, &s.u, &s.end.y, &s.end.stats, &s.end.dy, &s.du, &s.dz)
}

// input adds the branch of the own input of decoder layer i.
func (f *decoder) input(m *Model, i int, spec layerSpec, at string) *inputBranch {
	c, n := m.Config, f.names.inputs
	b := &inputBranch{act: spec.act, drop: site{fmt.Sprintf("layer.%d.input", i), c.Dropout}}
	b.gate = f.whole(m, at+n.gate, normalInit, false, c.Hidden, spec.input)
	b.proj = f.whole(m, at+n.proj, m.residualInit(), false, spec.input, c.Hidden)
	b.after = m.rmsNorm(at+n.after, c.Hidden, spec.normOffset, alike)
	return b
}

func (m *inputBranch) uses() []use {
	return append(append(m.gate.uses(), m.proj.uses()...), m.after.uses()...)
}

// operand returns a tensor of the residual stream as products read it. owned is its memory; invalid: it is x itself.
func (c *pass) operand(x tensorops.Tensor) (t, owned tensorops.Tensor) {
	if !x.Valid() || x.DType() == c.inner() {
		return x, owned
	}
	t = c.innerLike(x)
	c.Copy(t, x)
	return t, t
}

// forward records the sum of x, which it owns, and the branch.
func (m *inputBranch) forward(c *pass, b *block, s *inputState, input, x tensorops.Tensor) tensorops.Tensor {
	s.x = x
	n, owned := c.operand(x)
	s.u = c.project(n, []linear{m.gate})[0]
	c.Free(owned)
	g := c.AllocLike(s.u)
	c.Gate(g, s.u, input, m.act)
	y := b.residual(c, c.branch(&m.proj, g, x), &m.after, &s.end, x, m.drop)
	c.Free(g)
	return y
}

// inputGrad returns the gradient of x from that of the sum, which it owns, and that of the input.
func (m *inputBranch) inputGrad(c *pass, b *block, s *inputState, input, dy tensorops.Tensor) (dx, dinput tensorops.Tensor) {
	s.dz, dx = b.branchGrad(c, dy, &m.after, &s.end, m.drop, true)
	dinput = c.AllocLike(s.u)
	m.proj.inputGrad(c, dinput, s.dz, false)
	s.du = c.AllocLike(s.u)
	c.GateGrad(s.du, dinput, dinput, s.u, input, m.act)
	dn := c.sumOf(s.x, 1)
	m.gate.inputGrad(c, dn, s.du, false)
	c.Add(dx, dn, dy)
	c.Free(dn)
	return dx, dinput
}

func (m *inputBranch) weightGrad(c *pass, b *block, s *inputState, input tensorops.Tensor) {
	c.Gate(s.u, s.u, input, m.act)
	m.proj.weightGrad(c, s.u, s.dz)
	b.endGrad(c, &m.after, &s.end)
	n, owned := c.operand(s.x)
	m.gate.weightGrad(c, n, s.du)
	c.Free(owned)
	s.drop(c.List)
}
