package stages

import "github.com/troupe-ml/troupe/tensorops"

// The passes of a decoder layer whose input and output have more channels than the residual stream: see passing.go.

// carriedState is what a layer keeps of the channels behind the residual stream.
type carriedState struct {
	input  tensorops.Tensor    // the layer's own
	given  [2]tensorops.Tensor // keys and values of an earlier layer
	dinput tensorops.Tensor    // gradient of input, until it is passed on
}

func (s *carriedState) drop(l *tensorops.List, all bool) {
	free(l, &s.dinput)
	if all {
		free(l, &s.input, &s.given[0], &s.given[1])
	}
}

// cut returns a copy of some channels; an invalid tensor if there are none.
func (c *pass) cut(t tensorops.Tensor, at columns, to tensorops.DType) tensorops.Tensor {
	if !t.Valid() || at.width() == 0 { // not valid after an error
		return tensorops.Tensor{}
	}
	part := c.Alloc(to, t.Dim(0), t.Dim(1), at.width())
	c.Copy(part, t.Columns(at.from, at.to))
	return part
}

// paste copies t to some channels of a tensor.
func (c *pass) paste(to tensorops.Tensor, at columns, t tensorops.Tensor) {
	if at.width() > 0 {
		c.Copy(to.Columns(at.from, at.to), t)
	}
}

// forward records b's forward. It owns all, the layer's input.
func (p *carrying) forward(c *pass, b *block, s *blockState, all tensorops.Tensor) tensorops.Tensor {
	x := c.cut(all, p.stream, c.stage.opts.Residual)
	s.carried.input = c.cut(all, p.input, c.inner())
	for i, at := range p.given.halves() {
		s.carried.given[i] = c.cut(all, at, c.inner())
	}
	y := b.layer(c, s, x)
	out := c.hidden(p.out)
	c.paste(out, p.stream, y)
	for _, m := range p.moves {
		c.paste(out, m.out, all.Columns(m.in.from, m.in.to))
	}
	c.paste(out, p.givenOn, all.Columns(p.given.from, p.given.to))
	if b.spec.keeps {
		kept := &s.shared().kept
		for i, at := range p.kept.halves() {
			c.paste(out, at, kept[i])
		}
		free(c.List, &kept[0], &kept[1])
	}
	free(c.List, &all, &y)
	return out
}

// inputGrad records the gradient of the layer's input from that of its output, which it owns.
func (p *carrying) inputGrad(c *pass, b *block, s *blockState, dout tensorops.Tensor) tensorops.Tensor {
	residual := c.stage.opts.Residual
	dy := c.cut(dout, p.stream, residual)
	if b.spec.keeps {
		for i, at := range p.kept.halves() {
			s.shared().dkept[i] = c.cut(dout, at, c.inner())
		}
	}
	dx := b.layerGrad(c, s, dy)
	din := c.hidden(p.in)
	c.paste(din, p.stream, dx)
	for _, m := range p.moves {
		c.paste(din, m.in, dout.Columns(m.out.from, m.out.to))
	}
	c.paste(din, p.input, s.carried.dinput)
	free(c.List, &dx, &s.carried.dinput)
	if b.spec.shares {
		from := p.givenOn.halves()
		for i, at := range p.given.halves() {
			d := &s.shared().dgiven[i]
			sum := c.cut(dout, from[i], residual) // of later layers
			if sum.Valid() {
				c.Add(sum, sum, *d)
				c.paste(din, at, sum)
			} else {
				c.paste(din, at, *d)
			}
			free(c.List, d, &sum)
		}
	}
	c.Free(dout)
	return din
}
