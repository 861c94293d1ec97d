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

// beginBias returns the biases of the outputs of all experts: those of this rank's are sent to the others of its expert group. A token's
// rank needs them for the gradients of its weights, as the exact numbers of its dy do not travel.
func (f *expertFFN) beginBias(c *pass) exchanging {
	x, alone := f.group(c)
	if f.biases == nil || alone || !c.addsOnce() {
		return exchanging{}
	}
	own := c.weight(f.biases.down)
	a := tensorops.CollectiveArgs{What: tensorops.AllGather, Dst: c.Alloc(own.DType(), f.spec.count, own.Cols()), Src: own,
		Group: c.times.group(x.Group, false)}
	if !c.overlapsExperts() {
		c.times.end(c.List)
		c.AllGather(a.Dst, own, 0, a.Group)
		c.times.begin(c.List)
		return exchanging{came: a.Dst}
	}
	return exchanging{came: a.Dst, number: c.Begin(a)}
}

// weighBias adds what the bias of the outputs contributes to the gradient of the routing weights. It owns the biases that came.
func (f *expertFFN) weighBias(c *pass, s *expertState, dweights, dy, came tensorops.Tensor) {
	if f.biases == nil || !c.addsOnce() {
		return
	}
	all := came
	if !came.Valid() {
		all = c.weight(f.biases.down)
	}
	c.WeighBias(dweights, dy, all, s.experts)
	c.Free(came)
}

// biasGrad adds the gradient of a bias of experts from that of their rows. weighed: Combine weighs the rows.
func (f *expertFFN) biasGrad(c *pass, s *expertState, bias use, drows tensorops.Tensor, weighed bool) {
	if bias.frozen() {
		return
	}
	var weights, places tensorops.Tensor
	if _, alone := f.group(c); !alone {
		if weighed {
			weights = s.ofRows
		}
		by := c.stage.byParam[bias.param.Index].bySource
		for source, grad := range by {
			c.SourceColSum(grad, drows, s.held, weights, source, len(by))
		}
		return
	}
	if weighed {
		weights, places = s.weights, s.places
	}
	c.GroupedColSum(c.grad(bias), drows, s.offsets, weights, places)
}

// trainsOutputBias reports whether weightGrad needs the weights of the rows of this rank's experts.
func (f *expertFFN) trainsOutputBias() bool { return f.biases != nil && !f.biases.down.frozen() }

// trainsOutput reports whether weightGrad needs the gradients of the experts' outputs.
func (f *expertFFN) trainsOutput() bool {
	return !f.down.frozen() || f.trainsOutputBias() || f.adapters[ofDown] != nil
}
