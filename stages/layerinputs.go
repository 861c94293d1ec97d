package stages

import (
	"math"

	"github.com/troupe-ml/troupe/tensorops"
)

// layerInputs computes the inputs of all decoder layers, one after the other, from the scaled embedding x of each token before dropout:
//
//	(norm(projection(x)/√C) + √D·table[token])/√2
//
// The norm is over the D channels of each layer. The division by √C is in its eps.
type layerInputs struct {
	table use
	proj  linear
	norm  norm
	width int // D
}

// layerInputsState holds what a backward needs.
type layerInputsState struct {
	// The projection's input and output, and the statistics of its norm; computed again if only the tokens are kept.
	x, p, stats tensorops.Tensor
	dn, dp      tensorops.Tensor // gradients kept for weightGrad: of the norm, of the projection
	dq          tensorops.Tensor // of the table's rows
}

func (s *layerInputsState) drop(l *tensorops.List) {
	free(l, &s.x, &s.p, &s.stats, &s.dn, &s.dp, &s.dq)
}

// inputs adds what computes the inputs of the layers; nil: they have none.
func (f *decoder) inputs(m *Model) *layerInputs {
	c, n := m.Config, f.names.inputs
	if c.LayerInput == 0 {
		return nil
	}
	e := &layerInputs{width: c.LayerInput}
	e.table = m.add(n.table+".weight", normalInit, c.Vocab, c.Layers*c.LayerInput)
	e.proj = f.whole(m, n.model, normalInit, false, c.Hidden, c.Layers*c.LayerInput)
	e.norm = m.rmsNorm(n.norm, c.LayerInput, c.ends().normOffset, alike)
	e.norm.eps *= float64(c.Hidden)
	return e
}

func (e *layerInputs) uses() []use {
	return append(append([]use{e.table}, e.proj.uses()...), e.norm.uses()...)
}

// rows returns a view with one row for each layer of a position.
func (e *layerInputs) rows(t tensorops.Tensor) tensorops.Tensor {
	if !t.Valid() { // after an error
		return t
	}
	return t.View(t.Len()/e.width, e.width)
}

// project records the projection of x and returns its norm.
func (e *layerInputs) project(c *pass, s *layerInputsState, x tensorops.Tensor) (n tensorops.Tensor) {
	s.x = c.innerLike(x)
	c.Copy(s.x, x)
	s.p = c.project(s.x, []linear{e.proj})[0]
	n, s.stats = e.norm.forward(c, e.rows(s.p))
	return n
}

// The factors of the norm's output and of the table's rows.
func (e *layerInputs) factors() (norm, row float64) {
	return math.Sqrt(0.5), math.Sqrt(float64(e.width) / 2)
}

// forward returns the inputs, [B, T, layers·D]. s is nil in generation.
func (e *layerInputs) forward(c *pass, s *layerInputsState, x tensorops.Tensor) tensorops.Tensor {
	var own layerInputsState
	n := e.project(c, &own, x)
	y := c.embed(e.table, c.tokens, nil)
	factor, row := e.factors()
	c.scale(y, row)
	c.AddScaled(y, n, y, factor)
	c.Free(n)
	if s == nil || !c.mb.Train || c.mb.Recompute {
		own.drop(c.List)
	} else {
		*s = own
	}
	return y
}

// inputGrad returns the inputs' part of the gradient of x from that of the inputs, dy, which it owns. embedded returns x, which inputGrad
// frees.
func (e *layerInputs) inputGrad(c *pass, s *layerInputsState, dy tensorops.Tensor, embedded func() tensorops.Tensor) (dx tensorops.Tensor) {
	if !dy.Valid() { // after an error
		return dx
	}
	if !s.p.Valid() {
		x := embedded()
		n := e.project(c, s, x)
		free(c.List, &x, &n)
	}
	factor, row := e.factors()
	s.dn = c.innerLike(dy)
	c.AddScaled(s.dn, dy, tensorops.Tensor{}, factor)
	s.dp = c.innerLike(dy)
	e.norm.inputGrad(c, e.rows(s.dp), e.rows(s.dn), e.rows(s.p), s.stats, tensorops.Tensor{})
	dx = c.Alloc(c.inner(), dy.Dim(0), dy.Dim(1), e.proj.w.param.Whole[1])
	e.proj.inputGrad(c, dx, s.dp, false)
	if e.table.frozen() {
		c.Free(dy)
		return dx
	}
	c.scale(dy, row)
	s.dq = dy
	return dx
}

func (e *layerInputs) weightGrad(c *pass, s *layerInputsState) {
	if s.dq.Valid() {
		c.EmbedGrad(c.grad(e.table), s.dq, c.tokens)
	}
	e.norm.weightGrad(c, e.rows(s.dn), e.rows(s.p), s.stats)
	e.proj.weightGrad(c, s.x, s.dp)
	s.drop(c.List)
}
