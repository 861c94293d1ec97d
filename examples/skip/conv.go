package main

import (
	"fmt"
	"math"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// conv is a 3×3 convolution followed by GELU, of images [B, rows, columns, channels] with zeros
// around them. It takes several images as if their channels belonged to one image.
//
// Go code copies the 3×3 pixels of each result side by side, so that a matrix product, which runs
// on the device, does the rest.
type conv struct {
	side   int   // side of the result
	stride int   // pixels from one result to the next
	in     []int // channels of each input
	out    int   // channels of the result
}

const taps = 9 // pixels of one result

// width returns the number of inputs of one result.
func (l *conv) width() (n int) {
	for _, channels := range l.in {
		n += taps * channels
	}
	return n
}

// Params returns one row of weights for each channel of the result, and the bias.
func (l *conv) Params() []stages.LayerParam {
	return []stages.LayerParam{
		{Name: "weight", Shape: []int{l.out, l.width()}, Init: stages.Init{Std: math.Sqrt(2 / float64(l.width()))}},
		{Name: "bias", Shape: []int{l.out}},
	}
}

// FLOPs returns the operations of the product.
func (l *conv) FLOPs() float64 { return 2 * float64(l.side*l.side*l.width()*l.out) }

// The slots that conv saves.
const (
	convSum  = iota // before GELU
	convGrad        // gradient of the sum
)

func (l *conv) Forward(p *stages.Pass, in []tensorops.Tensor) []tensorops.Tensor {
	windows := l.windows(p, in)
	if p.Err() != nil {
		return nil
	}
	sum := p.Alloc(tensorops.Float32, p.Samples(), l.side, l.side, l.out)
	p.MatMul(sum, windows, p.Weight(0), tensorops.MatMulOpts{TransB: true, Bias: p.Weight(1), BF16: p.BF16()})
	p.Free(windows)
	y := p.AllocLike(sum)
	p.GELU(y, sum)
	p.Save(convSum, sum)
	return []tensorops.Tensor{y}
}

func (l *conv) InputGrad(p *stages.Pass, in, dout []tensorops.Tensor) []tensorops.Tensor {
	dsum := p.AllocLike(dout[0])
	p.GELUGrad(dsum, dout[0], p.Saved(convSum))
	p.Save(convGrad, dsum)
	dwindows := p.Alloc(tensorops.Float32, p.Samples(), l.side, l.side, l.width())
	p.MatMul(dwindows, dsum, p.Weight(0), tensorops.MatMulOpts{BF16: p.BF16()})
	din := make([]tensorops.Tensor, len(in))
	for i, x := range in {
		if p.WantsGrad(i) {
			din[i] = p.AllocLike(x)
			p.Call("add up windows", []tensorops.Tensor{dwindows}, din[i:i+1], func(reads, writes []tensorops.Array) error {
				windows, image, channels := reads[0].Float, writes[0].Float, l.in[i]
				clear(image)
				l.walk(i, len(image), func(at, window int) {
					for k, v := range windows[window:][:channels] {
						image[at+k] += v
					}
				})
				return nil
			})
		}
	}
	p.Free(dwindows)
	return din
}

func (l *conv) WeightGrad(p *stages.Pass, in, _ []tensorops.Tensor) {
	windows, dsum := l.windows(p, in), p.Saved(convGrad)
	p.MatMul(p.Grad(0), dsum, windows, tensorops.MatMulOpts{TransA: true, Accumulate: true, BF16: p.BF16()})
	p.ColSum(p.Grad(1), dsum)
	p.Free(windows)
}

// windows copies the inputs of each result side by side: [B, rows, columns, width].
func (l *conv) windows(p *stages.Pass, in []tensorops.Tensor) tensorops.Tensor {
	if len(in) != len(l.in) {
		p.Fail(fmt.Errorf("%w: it takes %d images, but got %d", stages.ErrInput, len(l.in), len(in)))
		return tensorops.Tensor{}
	}
	for i, x := range in {
		if side := l.side * l.stride; x.DType() != tensorops.Float32 || x.Rank() != 4 || x.Dim(1) != side || x.Dim(2) != side ||
			x.Dim(3) != l.in[i] {
			p.Fail(fmt.Errorf("%w: input %d must be float32 images of %d×%d with %d channels, but is %v", stages.ErrInput, i, side, side, l.in[i],
				x))
			return tensorops.Tensor{}
		}
	}
	windows := p.Alloc(tensorops.Float32, p.Samples(), l.side, l.side, l.width())
	p.Call("lay out windows", in, []tensorops.Tensor{windows}, func(reads, writes []tensorops.Array) error {
		windows := writes[0].Float
		clear(windows)
		for i, image := range reads {
			l.walk(i, len(image.Float), func(at, window int) {
				copy(windows[window:][:l.in[i]], image.Float[at:])
			})
		}
		return nil
	})
	return windows
}

// walk calls f for each pixel in each window on input i, for n samples, with the start of the
// pixel's channels in the input and in the windows.
func (l *conv) walk(i, n int, f func(at, window int)) {
	channels, width, first := l.in[i], l.width(), 0
	for _, before := range l.in[:i] {
		first += taps * before
	}
	side := l.side * l.stride
	for sample := range n / (side * side * channels) {
		for result := range l.side * l.side {
			for tap := range taps {
				row, column := result/l.side*l.stride+tap/3-1, result%l.side*l.stride+tap%3-1
				if row < 0 || row >= side || column < 0 || column >= side {
					continue
				}
				f(((sample*side+row)*side+column)*channels, (sample*l.side*l.side+result)*width+first+tap*channels)
			}
		}
	}
}
