package stages

import "github.com/troupe-ml/troupe/tensorops"

// expertBiases are the biases of a router and its experts: that of the router before the softmax, and a row for each expert of those of
// the three matrices.
type expertBiases struct{ router, gate, up, down use }

func (b *expertBiases) uses() []use {
	if b == nil {
		return nil
	}
	return []use{b.router, b.gate, b.up, b.down}
}

// biasOf returns the bias that belongs to a weight; invalid: there is none.
func (f *expertFFN) biasOf(c *pass, w use) tensorops.Tensor {
	if b := f.biases; b != nil {
		switch w {
		case f.router:
			return c.weight(b.router)
		case f.gate:
			return c.weight(b.gate)
		case f.up:
			return c.weight(b.up)
		case f.down:
			if c.addsOnce() {
				return c.weight(b.down)
			}
		}
	}
	return tensorops.Tensor{}
}

// weighBias adds what the bias of the outputs contributes to the gradient of the routing weights.
func (f *expertFFN) weighBias(c *pass, s *expertState, dweights, dy tensorops.Tensor) {
	if f.biases != nil && c.addsOnce() {
		c.WeighBias(dweights, dy, c.weight(f.biases.down), s.experts)
	}
}

// biasGrad adds the gradient of a bias of experts from that of their rows. weighed: Combine weighs the rows.
func (f *expertFFN) biasGrad(c *pass, s *expertState, bias use, drows tensorops.Tensor, weighed bool) {
	if bias.frozen() {
		return
	}
	var weights, places tensorops.Tensor
	if weighed {
		weights, places = s.weights, s.places
	}
	c.GroupedColSum(c.grad(bias), drows, s.offsets, weights, places)
}

// trainsOutput reports whether weightGrad needs the gradients of the experts' outputs.
func (f *expertFFN) trainsOutput() bool {
	return !f.down.frozen() || f.biases != nil && !f.biases.down.frozen() || f.adapters[ofDown] != nil
}
