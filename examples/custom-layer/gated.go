package main

import (
	"fmt"
	"math"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// gated is a residual unit with a gate (Dauphin et al. 2017): y = x + u·σ(v), where u and v are the
// two halves of x·Wᵀ + b. It keeps nothing of a microbatch in itself; Pass.Save does.
type gated struct{ width int }

// newGated builds the layer for an entry of model.stack, such as "gated width=32".
func newGated(o *stages.LayerOptions) (stages.Layer, error) {
	l := &gated{width: o.Int("width", o.Width)}
	if l.width < 1 || l.width > stages.MaxHidden {
		return nil, fmt.Errorf("width is %d: it must be from 1 to %d", l.width, stages.MaxHidden)
	}
	return l, nil
}

// FLOPs returns the operations of the product, which are used to spread the layers over the stages.
func (l *gated) FLOPs() float64 { return 4 * float64(l.width) * float64(l.width) }

// Params returns W and b. Weight(0), Grad(0) and so on refer to them by index.
func (l *gated) Params() []stages.LayerParam {
	return []stages.LayerParam{
		{Name: "weight", Shape: []int{2 * l.width, l.width}, Init: stages.Init{Std: 1 / math.Sqrt(float64(l.width))}},
		{Name: "bias", Shape: []int{2 * l.width}},
	}
}

// The slots that gated saves from one pass to the next.
const (
	halves     = iota // u and v
	halvesGrad        // gradient of the halves
)

// Forward takes rows of x. The caller owns its result; the halves are kept for InputGrad.
func (l *gated) Forward(p *stages.Pass, in []tensorops.Tensor) []tensorops.Tensor {
	x := in[0]
	if x.Cols() != l.width || x.DType() != tensorops.Float32 {
		p.Fail(fmt.Errorf("it takes float32 rows of %d numbers, but got %v", l.width, x))
		return nil
	}
	uv := p.Alloc(tensorops.Float32, x.Rows(), 2*l.width)
	p.MatMul(uv, x.Matrix(), p.Weight(0), tensorops.MatMulOpts{TransB: true, Bias: p.Weight(1), BF16: p.BF16()})
	p.Save(halves, uv)
	y := p.AllocLike(x)
	p.Call("gate", []tensorops.Tensor{x, uv}, []tensorops.Tensor{y}, func(reads, writes []tensorops.Array) error {
		x, uv, y := reads[0].Float, reads[1].Float, writes[0].Float
		for i := range y {
			u, v := l.pair(uv, i)
			y[i] = x[i] + *u*sigmoid(*v)
		}
		return nil
	})
	return []tensorops.Tensor{y}
}

// InputGrad leaves the gradient of the halves for WeightGrad, which may come much later.
func (l *gated) InputGrad(p *stages.Pass, in, dout []tensorops.Tensor) []tensorops.Tensor {
	dy, uv := dout[0], p.Saved(halves)
	duv := p.AllocLike(uv)
	p.Call("gate gradient", []tensorops.Tensor{dy, uv}, []tensorops.Tensor{duv}, func(reads, writes []tensorops.Array) error {
		dy, uv, duv := reads[0].Float, reads[1].Float, writes[0].Float
		for i := range dy {
			u, v := l.pair(uv, i)
			du, dv := l.pair(duv, i)
			s := sigmoid(*v)
			*du, *dv = dy[i]*s, dy[i]*(*u)*s*(1-s)
		}
		return nil
	})
	p.Save(halvesGrad, duv)
	dx := p.AllocLike(in[0])
	p.MatMul(dx.Matrix(), duv, p.Weight(0), tensorops.MatMulOpts{BF16: p.BF16()})
	p.Add(dx, dx, dy)
	return []tensorops.Tensor{dx}
}

// WeightGrad adds to the gradients, which already hold those of earlier microbatches.
func (l *gated) WeightGrad(p *stages.Pass, in, _ []tensorops.Tensor) {
	duv := p.Saved(halvesGrad)
	p.MatMul(p.Grad(0), duv, in[0].Matrix(), tensorops.MatMulOpts{TransA: true, Accumulate: true, BF16: p.BF16()})
	p.ColSum(p.Grad(1), duv)
}

// pair returns the numbers of both halves for element i of x.
func (l *gated) pair(uv []float32, i int) (u, v *float32) {
	row, column := i/l.width, i%l.width
	return &uv[2*row*l.width+column], &uv[(2*row+1)*l.width+column]
}

func sigmoid(v float32) float32 { return float32(1 / (1 + math.Exp(-float64(v)))) }
