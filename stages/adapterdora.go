package stages

import (
	"math"

	"github.com/troupe-ml/troupe/tensorops"
)

// dora is what a DoRA layer trains besides A and B: the norm of each row of V = W + s·B·A. The layer computes
// y = m/‖V‖ ⊙ (W·x + s·B·A·x) + b, where m and ‖V‖ have a number for each output. No gradient passes through ‖V‖, as in the paper
// (arXiv 2402.09353, section 4.3) and in PEFT's DoraLinearLayer.
type dora struct {
	magnitude use
	part      bool // this rank has some columns of W only
}

// doraScale has factors of a layer's outputs: m/‖V‖ and 1/‖V‖.
type doraScale struct{ scale, inverse tensorops.Tensor }

// smallestSquare is added to the mean square of a row, so that a row of zeros divides nothing by zero.
const smallestSquare = MinNormEps

// scaleOf records the factors. ‖V‖ is computed from V, which is as large as W, and then freed.
func (a *adapter) scaleOf(c *pass, m *linear) (s doraScale) {
	w, b := c.weight(m.w), c.weight(a.b)
	out, in := a.b.param.Shape[0], w.Cols()
	v := c.Alloc(tensorops.Float32, out, in)
	c.Copy(v, w)
	scaled := c.Alloc(tensorops.Float32, out, a.rank)
	c.AddScaled(scaled, b, tensorops.Tensor{}, a.scale)
	c.MatMul(v, scaled, c.weight(a.a), tensorops.MatMulOpts{Accumulate: true})
	c.Free(scaled)
	if a.dora.part { // the norm is that of the whole row
		whole := c.Alloc(tensorops.Float32, out, a.in)
		c.Fill(whole, 0)
		if whole.Valid() {
			c.Copy(whole.Columns(a.from, a.from+in), v)
		}
		c.AllReduce(whole, tensorops.Sum, c.tensor().Group)
		c.Free(v)
		v = whole
	}
	norms := c.Alloc(tensorops.Float32, out)
	unused, ones := c.AllocLike(v), c.Alloc(tensorops.Float32, a.in)
	c.Fill(ones, 1)
	c.RMSNorm(unused, v, ones, norms, tensorops.RMSNormOpts{Eps: smallestSquare})
	free(c.List, &v, &unused, &ones)
	s.inverse = c.Alloc(tensorops.Float32, out)
	c.AddScaled(s.inverse, norms, tensorops.Tensor{}, 1/math.Sqrt(float64(a.in)))
	c.Free(norms)
	s.scale = c.Alloc(tensorops.Float32, out)
	c.timesColumns(s.scale, s.inverse, c.weight(a.dora.magnitude))
	return s
}

func (s *doraScale) free(l *tensorops.List) { free(l, &s.scale, &s.inverse) }

// timesColumns records y = x with each column multiplied by a factor. It is the gradient of an RMSNorm whose input is 0 and whose
// statistics are 1, an operation that every device has.
func (c *pass) timesColumns(y, x, factors tensorops.Tensor) {
	if !x.Valid() || !y.Valid() {
		return
	}
	x = x.View(x.Len()/factors.Len(), factors.Len())
	zeros, ones := c.AllocLike(x), c.Alloc(tensorops.Float32, x.Rows())
	c.Fill(zeros, 0)
	c.Fill(ones, 1)
	c.RMSNormGrad(y.View(x.Shape()...), x, zeros, factors, ones, tensorops.Tensor{}, tensorops.RMSNormOpts{})
	free(c.List, &zeros, &ones)
}

// unscaled records u = W·x + s·B·A·x and returns h = s·A·x.
func (a *adapter) unscaled(c *pass, m *linear, u, x, h tensorops.Tensor) tensorops.Tensor {
	o := a.product(c)
	o.TransB = m.transposed(forForward)
	c.MatMul(u, x, c.factor(m.w), o)
	if !h.Valid() {
		h = a.down(c, x)
	}
	o.TransB = true
	c.addProduct(u, h, c.factor(a.b), o)
	return h
}

// doraForward records y from x.
func (a *adapter) doraForward(c *pass, m *linear, y, x tensorops.Tensor) {
	s := adapted{dora: a.scaleOf(c, m)}
	s.h = a.unscaled(c, m, y, x, tensorops.Tensor{})
	c.timesColumns(y, y, s.dora.scale)
	if m.hasBias && !m.noBias {
		bias := c.weight(m.b)
		c.AddPositions(y, y, bias.View(1, bias.Len()), tensorops.PositionOpts{Period: 1})
	}
	a.keep(c, s)
}

// doraInputGrad records dx, or adds to it.
func (a *adapter) doraInputGrad(c *pass, m *linear, dx, dy tensorops.Tensor, add bool) {
	s := a.kept(c)
	if !s.dora.scale.Valid() {
		s.dora = a.scaleOf(c, m)
	}
	du := c.AllocLike(dy)
	c.timesColumns(du, dy, s.dora.scale)
	o := a.product(c)
	o.TransB, o.Accumulate = m.transposed(forInputGrad), add
	c.MatMul(dx, du, c.factor(m.w), o)
	s.g = a.back(c, du)
	c.Free(du)
	c.addProduct(dx, s.g, c.factor(a.a), a.product(c))
	a.keep(c, s)
}

// doraWeightGrad adds to the gradients of A, B and m. For the latter, it computes u again.
func (a *adapter) doraWeightGrad(c *pass, m *linear, x, dy tensorops.Tensor) {
	s := a.kept(c)
	if !s.dora.scale.Valid() {
		s.dora = a.scaleOf(c, m)
	}
	u := c.AllocLike(dy)
	s.h = a.unscaled(c, m, u, x, s.h)
	sums, ones := c.Alloc(tensorops.Float32, a.b.param.Shape[0]), c.Alloc(tensorops.Float32, dy.Rows())
	c.Fill(sums, 0)
	c.Fill(ones, 1)
	c.RMSNormWeightGrad(sums, dy, u, ones) // Σ dy·u over the rows
	c.timesColumns(sums, sums, s.dora.inverse)
	grad := c.grad(a.dora.magnitude)
	c.Add(grad, grad, sums)
	free(c.List, &sums, &ones)
	c.timesColumns(u, dy, s.dora.scale)
	if !s.g.Valid() {
		s.g = a.back(c, u)
	}
	o := a.product(c)
	o.TransA, o.Accumulate = true, true
	c.MatMul(c.grad(a.a), s.g, x, o)
	c.MatMul(c.grad(a.b), u, s.h, o)
	c.Free(u)
	s.free(c.List)
}
