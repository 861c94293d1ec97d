package main

import (
	"fmt"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// twice doubles the width and height of an image: each pixel becomes four.
type twice struct{ side int } // side of the result

func (*twice) Params() []stages.LayerParam { return nil }

func (l *twice) Forward(p *stages.Pass, in []tensorops.Tensor) []tensorops.Tensor {
	x := in[0]
	if x.Rank() != 4 || 2*x.Dim(1) != l.side || 2*x.Dim(2) != l.side {
		p.Fail(fmt.Errorf("%w: it makes images of %d×%d, but got %v", stages.ErrInput, l.side, l.side, x))
		return nil
	}
	y := p.Alloc(tensorops.Float32, x.Dim(0), l.side, l.side, x.Dim(3))
	p.Call("repeat pixels", in, []tensorops.Tensor{y}, func(reads, writes []tensorops.Array) error {
		l.walk(writes[0].Shape, func(small, large, channels int) {
			copy(writes[0].Float[large:][:channels], reads[0].Float[small:])
		})
		return nil
	})
	return []tensorops.Tensor{y}
}

func (l *twice) InputGrad(p *stages.Pass, in, dout []tensorops.Tensor) []tensorops.Tensor {
	dx := p.AllocLike(in[0])
	p.Call("add up pixels", dout, []tensorops.Tensor{dx}, func(reads, writes []tensorops.Array) error {
		clear(writes[0].Float)
		l.walk(reads[0].Shape, func(small, large, channels int) {
			for k, v := range reads[0].Float[large:][:channels] {
				writes[0].Float[small+k] += v
			}
		})
		return nil
	})
	return []tensorops.Tensor{dx}
}

func (*twice) WeightGrad(*stages.Pass, []tensorops.Tensor, []tensorops.Tensor) {}

// walk calls f for each pixel of large images of a shape, with the start of its channels in the
// small and in the large images.
func (l *twice) walk(shape []int, f func(small, large, channels int)) {
	channels, half := shape[3], l.side/2
	for pixel := range shape[0] * l.side * l.side {
		line, column := pixel/l.side, pixel%l.side // line counts over all images
		f((line/2*half+column/2)*channels, pixel*channels, channels)
	}
}

// add is the sum of two images. The gradient of each is that of the sum.
type add struct{}

func (add) Params() []stages.LayerParam { return nil }

func (add) Forward(p *stages.Pass, in []tensorops.Tensor) []tensorops.Tensor {
	y := p.AllocLike(in[0])
	p.Add(y, in[0], in[1])
	return []tensorops.Tensor{y}
}

func (add) InputGrad(_ *stages.Pass, _, dout []tensorops.Tensor) []tensorops.Tensor {
	return []tensorops.Tensor{dout[0], dout[0]}
}

func (add) WeightGrad(*stages.Pass, []tensorops.Tensor, []tensorops.Tensor) {}
