package stages

import "github.com/troupe-ml/troupe/tensorops"

// norm is LayerNorm (GPT-2) or RMSNorm (Llama) over the channels, or none.
type norm struct {
	gamma, beta use
	hasBeta     bool
	rms         bool
	absent      bool // the rows stay as they are
	eps         float64
	offset      float64 // gamma + offset multiplies; of RMSNorm
}

func (m *norm) uses() []use {
	if m.absent {
		return nil
	}
	if m.hasBeta {
		return []use{m.gamma, m.beta}
	}
	return []use{m.gamma}
}

// numbers are an RMSNorm's.
func (m *norm) numbers() tensorops.RMSNormOpts {
	return tensorops.RMSNormOpts{Eps: m.eps, Offset: m.offset}
}

// forward returns the normalized rows and the statistics for the gradient.
func (m *norm) forward(c *pass, x tensorops.Tensor) (y, stats tensorops.Tensor) {
	y = c.innerLike(x)
	if m.absent {
		c.Copy(y.Matrix(), x.Matrix())
		return y, stats
	}
	if m.rms {
		stats = c.Alloc(tensorops.Float32, x.Rows())
		c.RMSNorm(y, x, c.weight(m.gamma), stats, m.numbers())
		return y, stats
	}
	stats = c.Alloc(tensorops.Float32, x.Rows(), 2)
	c.LayerNorm(y, x, c.weight(m.gamma), c.optional(m.beta, m.hasBeta), stats, m.eps)
	return y, stats
}

// recompute records forward's output again.
func (m *norm) recompute(c *pass, x tensorops.Tensor) tensorops.Tensor {
	y, stats := m.forward(c, x)
	c.Free(stats)
	return y
}

// optional returns a weight that a layer may lack.
func (c *pass) optional(u use, has bool) tensorops.Tensor {
	if !has {
		return tensorops.Tensor{}
	}
	return c.weight(u)
}

// inputGrad records dx = the input's gradient + skip; skip may be invalid if there is a norm.
func (m *norm) inputGrad(c *pass, dx, dy, x, stats, skip tensorops.Tensor) {
	if m.absent {
		c.Add(dx, dy, skip)
		return
	}
	if m.rms {
		c.RMSNormGrad(dx, dy, x, c.weight(m.gamma), stats, skip, m.numbers())
		return
	}
	c.LayerNormGrad(dx, dy, x, c.weight(m.gamma), stats, skip)
}

// grads records inputGrad and, if the weight gradient is requested now, weightGrad right before it,
// and reports whether it did. Both read the same tensors, and a device may compute them together.
func (m *norm) grads(c *pass, dx, dy, x, stats, skip tensorops.Tensor) (weights bool) {
	if c.weightsToo {
		m.weightGrad(c, dy, x, stats)
	}
	m.inputGrad(c, dx, dy, x, stats, skip)
	return c.weightsToo
}

func (m *norm) weightGrad(c *pass, dy, x, stats tensorops.Tensor) {
	if m.absent || m.gamma.frozen() {
		return
	}
	if m.rms {
		c.RMSNormWeightGrad(c.grad(m.gamma), dy, x, stats)
		return
	}
	var beta tensorops.Tensor
	if m.hasBeta {
		beta = c.grad(m.beta)
	}
	c.LayerNormWeightGrad(c.grad(m.gamma), beta, dy, x, stats)
}
