package stages

import "github.com/troupe-ml/troupe/tensorops"

// linear is y = x·W + b. The weight is stored as in the family's files: [out, in], or [in, out]
// (GPT-2).
type linear struct {
	w, b    use
	hasBias bool
	noBias  bool // in the forward; another rank adds the bias
	inOut   bool
	out     int
	adapter *adapter // nil: none
}

func (m *linear) uses() []use {
	us := []use{m.w}
	if m.hasBias {
		us = append(us, m.b)
	}
	if m.adapter != nil {
		us = append(us, m.adapter.uses()...)
	}
	return us
}

// factors returns the weights that products read, and the bias if biases is set.
func (m *linear) factors(biases bool) []use {
	us := []use{m.w}
	if m.hasBias && biases {
		us = append(us, m.b)
	}
	if m.adapter != nil {
		us = append(us, m.adapter.a, m.adapter.b)
	}
	return us
}

// The forms in which products use a weight: as stored, or transposed.
const (
	forForward = iota
	forInputGrad
	numForms
)

// transposed reports whether a product's B is the transpose of the stored weight.
func (m *linear) transposed(form int) bool { return m.inOut == (form == forInputGrad) }

// product returns the options of a product with the weight.
func (m *linear) product(c *pass, form int) tensorops.MatMulOpts {
	return tensorops.MatMulOpts{TransB: m.heldInOut(c.stage) == (form == forInputGrad), BF16: c.stage.opts.BF16,
		Packed: c.stage.byParam[m.w.param.Index].packed[form]}
}

// forward records y from x (N×in).
func (m *linear) forward(c *pass, y, x tensorops.Tensor) {
	if a := m.adapter; a != nil && a.dora != nil {
		a.doraForward(c, m, y, x)
		return
	}
	o := m.product(c, forForward)
	if m.hasBias && !m.noBias {
		o.Bias = c.weight(m.b)
		if low := c.factor(m.b); y.Valid() && y.DType() == low.DType() { // a device can add a bias of the result's type
			o.Bias = low
		}
	}
	c.MatMul(y, x, c.factorOf(m.w, y), o)
	if m.adapter != nil {
		m.adapter.forward(c, y, x)
	}
}

// inputGrad records dx, or adds to it.
func (m *linear) inputGrad(c *pass, dx, dy tensorops.Tensor, add bool) {
	if a := m.adapter; a != nil && a.dora != nil {
		a.doraInputGrad(c, m, dx, dy, add)
		return
	}
	o := m.product(c, forInputGrad)
	o.Accumulate = add
	c.MatMul(dx, dy, c.factorOf(m.w, dy), o)
	if m.adapter != nil {
		m.adapter.inputGrad(c, dx, dy)
	}
}

// weightGrad adds this microbatch's gradients of weight and bias.
func (m *linear) weightGrad(c *pass, x, dy tensorops.Tensor) {
	a, b := dy, x
	if m.inOut {
		a, b = x, dy
	}
	if !m.w.frozen() {
		grad := c.grad(m.w)
		if padded := c.stage.byParam[m.w.param.Index].gradPadded; padded.Valid() && padded.Rows() == dy.Cols() {
			grad = padded
		}
		c.MatMul(grad, a, b, tensorops.MatMulOpts{TransA: true, Accumulate: true, BF16: c.stage.opts.BF16})
	}
	if m.hasBias && !m.b.frozen() {
		c.ColSum(c.grad(m.b), dy.Matrix())
	}
	switch a := m.adapter; {
	case a == nil:
	case a.dora != nil:
		a.doraWeightGrad(c, m, x, dy)
	default:
		a.weightGrad(c, x, dy)
	}
}

// allocatePacked allocates the packed forms of every linear layer's weight, and of the matrices of experts if they fit as well.
func (s *Stage) allocatePacked(l *tensorops.List) {
	bytes, kinds := int64(0), []func(func(h *localParam, form, n int)){s.eachPacked, s.eachPackedExperts}
	if s.opts.LeaveExperts {
		kinds = kinds[:1]
	}
	for _, each := range kinds {
		each(func(_ *localParam, _, n int) { bytes += int64(n) * int64(s.productType().Size()) })
		if most := s.opts.PackBytes; most > 0 && bytes > most {
			return
		}
		each(func(h *localParam, form, n int) { h.packed[form] = l.Alloc(s.productType(), n) })
	}
}

// eachPacked calls f for each form of a weight that may be packed, with its number of elements.
func (s *Stage) eachPacked(f func(h *localParam, form, n int)) {
	s.eachLinear(func(m *linear, h *localParam) {
		if h.param.Frozen || h.splitsWeight {
			return // a frozen or split weight is meant to take less memory, not more
		}
		for form := range h.packed {
			k, n := h.w.Rows(), h.w.Cols()
			if m.transposed(form) {
				k, n = n, k
			}
			f(h, form, tensorops.PackedLen(k, n))
		}
	})
}

// productType returns the type of the operands of products, and of all activations within a
// language model's layer except the residual stream.
func (s *Stage) productType() tensorops.DType {
	if s.opts.BF16 {
		return tensorops.BFloat16
	}
	return tensorops.Float32
}

// inner returns the same type.
func (c *pass) inner() tensorops.DType { return c.stage.productType() }

// innerLike allocates a tensor of t's shape for an activation within a layer.
func (c *pass) innerLike(t tensorops.Tensor) tensorops.Tensor {
	if !t.Valid() {
		return tensorops.Tensor{}
	}
	return c.Alloc(c.inner(), t.Shape()...)
}

// sumLike allocates a tensor of t's shape for the sum of n products: float32 if several are added.
func (c *pass) sumLike(t tensorops.Tensor, n int) tensorops.Tensor {
	if n == 1 {
		return c.innerLike(t)
	}
	if !t.Valid() {
		return tensorops.Tensor{}
	}
	return c.Alloc(tensorops.Float32, t.Shape()...)
}

// sumOf is sumLike for all positions of a tensor of the residual stream.
func (c *pass) sumOf(t tensorops.Tensor, n int) tensorops.Tensor {
	if !c.sequence() {
		return c.sumLike(t, n)
	}
	if !t.Valid() {
		return tensorops.Tensor{}
	}
	dtype := c.inner()
	if n > 1 {
		dtype = tensorops.Float32
	}
	return c.Alloc(dtype, t.Dim(0), c.mb.Positions, t.Cols())
}

// factor returns a weight as products read it.
func (c *pass) factor(u use) tensorops.Tensor {
	if h := c.stage.byParam[u.param.Index]; h.low.Valid() {
		return h.low
	}
	return c.weight(u)
}

// factorOf is factor for a product with as many outputs as y. If these are more than the weight's
// rows, it includes the padding rows of zeros.
func (c *pass) factorOf(u use, y tensorops.Tensor) tensorops.Tensor {
	if padded := c.stage.byParam[u.param.Index].lowPadded; padded.Valid() && padded.Rows() == y.Cols() {
		return padded
	}
	return c.factor(u)
}

// round records the bfloat16 copies of weights that no update has written, and then pack.
func (s *Stage) round(l *tensorops.List) {
	for _, h := range s.local {
		if h.low.Valid() {
			l.Copy(h.low, h.w)
		}
	}
	s.pack(l)
}

// pack records the packing of weights, after they have changed.
func (s *Stage) pack(l *tensorops.List) {
	if !s.opts.Pack {
		return
	}
	s.eachLinear(func(m *linear, h *localParam) {
		for form, t := range h.packed {
			if !t.Valid() {
				continue
			}
			l.Pack(t, h.w, m.transposed(form), s.opts.BF16)
		}
	})
	s.packExperts(l)
}

func (s *Stage) eachLinear(f func(m *linear, h *localParam)) {
	for _, c := range s.order {
		for _, layer := range c.layers {
			for _, m := range layer.linears() {
				f(m, s.byParam[m.w.param.Index])
			}
		}
	}
}
