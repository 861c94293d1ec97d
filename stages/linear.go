package stages

import "github.com/troupe-ml/troupe/tensorops"

// linear is y = x·W + b. The weight is stored as the family's files store it:
// [out, in], or [in, out] (GPT-2).
type linear struct {
	w, b    use
	hasBias bool
	inOut   bool
	out     int
}

func (m *linear) uses() []use {
	if m.hasBias {
		return []use{m.w, m.b}
	}
	return []use{m.w}
}

// forward records y from x (N×in).
func (m *linear) forward(c *pass, y, x tensorops.Tensor) {
	o := tensorops.MatMulOpts{TransB: !m.inOut, BF16: c.stage.opts.BF16}
	if m.hasBias {
		o.Bias = c.weight(m.b)
	}
	c.MatMul(y, x, c.weight(m.w), o)
}

// inputGrad records dx, or adds to it.
func (m *linear) inputGrad(c *pass, dx, dy tensorops.Tensor, add bool) {
	c.MatMul(dx, dy, c.weight(m.w), tensorops.MatMulOpts{TransB: m.inOut, Accumulate: add, BF16: c.stage.opts.BF16})
}

// weightGrad adds this microbatch's part to the gradients.
func (m *linear) weightGrad(c *pass, x, dy tensorops.Tensor) {
	a, b := dy, x
	if m.inOut {
		a, b = x, dy
	}
	c.MatMul(c.grad(m.w), a, b, tensorops.MatMulOpts{TransA: true, Accumulate: true, BF16: c.stage.opts.BF16})
	if m.hasBias {
		c.ColSum(c.grad(m.b), dy.Matrix())
	}
}
