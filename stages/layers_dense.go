package stages

import (
	"fmt"
	"math"

	"github.com/troupe-ml/troupe/tensorops"
)

// Dense is y = act(x·Wᵀ + b), followed by dropout. It acts on the last dimension of its input.
type Dense struct {
	in, out int
	act     Activation
	dropout float64
}

// NewDense makes a Dense from rows of in numbers to rows of out numbers. act is "" for none;
// dropout is a probability.
func NewDense(in, out int, act Activation, dropout float64) *Dense {
	return &Dense{in, out, act, dropout}
}

func (*Dense) builtIn() {}

// Width returns the size of the output's last dimension.
func (l *Dense) Width() int { return l.out }

// FLOPs returns the operations of the product for one row.
func (l *Dense) FLOPs() float64 { return 2 * float64(l.in) * float64(l.out) }

// Params returns the weight, [out, in], and the bias, [out]. The weight is initialized with
// variance 2/in if an activation follows (He et al. 2015), otherwise with 1/in.
func (l *Dense) Params() []LayerParam {
	gain := 1.0
	if l.act != "" {
		gain = 2
	}
	return []LayerParam{
		{Name: "weight", Shape: []int{l.out, l.in}, Init: Init{Std: math.Sqrt(gain / float64(max(l.in, 1)))}},
		{Name: "bias", Shape: []int{l.out}},
	}
}

// The slots that a Dense saves.
const (
	denseSum = iota // before the activation
	denseGrad
)

// Forward returns [..., out] for an input of [..., in].
func (l *Dense) Forward(p *Pass, in []tensorops.Tensor) []tensorops.Tensor {
	x := in[0]
	if x.Cols() != l.in || x.DType() != tensorops.Float32 {
		p.Fail(fmt.Errorf("%w: it takes float32 rows of %d numbers, but got %v", ErrInput, l.in, x))
		return nil
	}
	dims := x.Shape()
	dims[len(dims)-1] = l.out
	y := p.Alloc(tensorops.Float32, dims...)
	p.MatMul(y, x, p.Weight(0), tensorops.MatMulOpts{TransB: true, Bias: p.Weight(1), BF16: p.BF16()})
	if l.act != "" {
		sum := y
		y = p.AllocLike(sum)
		l.act.forward(p, y, sum)
		p.Save(denseSum, sum)
	}
	l.drop(p, y)
	return []tensorops.Tensor{y}
}

func (l *Dense) drop(p *Pass, t tensorops.Tensor) {
	if p.Train() && l.dropout > 0 {
		p.Drop(t, t, "", l.dropout)
	}
}

// InputGrad is the gradient through dropout, activation and product.
func (l *Dense) InputGrad(p *Pass, in, dout []tensorops.Tensor) []tensorops.Tensor {
	dy := dout[0]
	if l.act != "" || l.dropout > 0 {
		dy = p.AllocLike(dout[0])
		p.Copy(dy.Matrix(), dout[0].Matrix())
		l.drop(p, dy)
		if l.act != "" {
			l.act.grad(p, dy, dy, p.Saved(denseSum))
		}
		p.Save(denseGrad, dy)
	}
	if !p.WantsGrad(0) {
		return nil
	}
	dx := p.AllocLike(in[0])
	p.MatMul(dx, dy, p.Weight(0), tensorops.MatMulOpts{BF16: p.BF16()})
	return []tensorops.Tensor{dx}
}

// WeightGrad adds dyᵀ·x to the weight's gradient, and dy to the bias's.
func (l *Dense) WeightGrad(p *Pass, in, dout []tensorops.Tensor) {
	dy := p.Saved(denseGrad)
	if !dy.Valid() {
		dy = dout[0]
	}
	p.MatMul(p.Grad(0), dy, in[0], tensorops.MatMulOpts{TransA: true, Accumulate: true, BF16: p.BF16()})
	p.ColSum(p.Grad(1), dy.Matrix())
}

// LayerNorm normalizes over the last dimension (Ba et al. 2016).
type LayerNorm struct{ width int }

// NewLayerNorm makes a LayerNorm for rows of width numbers.
func NewLayerNorm(width int) *LayerNorm { return &LayerNorm{width} }

func (*LayerNorm) builtIn() {}

// Params returns gamma and beta, each [width].
func (l *LayerNorm) Params() []LayerParam {
	return []LayerParam{{Name: "weight", Shape: []int{l.width}, Init: ones}, {Name: "bias", Shape: []int{l.width}}}
}

const normEps = 1e-5

// Forward normalizes each row.
func (l *LayerNorm) Forward(p *Pass, in []tensorops.Tensor) []tensorops.Tensor {
	y, stats := p.AllocLike(in[0]), p.Alloc(tensorops.Float32, in[0].Rows(), 2)
	p.LayerNorm(y, in[0], p.Weight(0), p.Weight(1), stats, normEps)
	p.Save(0, stats)
	return []tensorops.Tensor{y}
}

// InputGrad returns the gradient of the input.
func (l *LayerNorm) InputGrad(p *Pass, in, dout []tensorops.Tensor) []tensorops.Tensor {
	dx := p.AllocLike(in[0])
	p.LayerNormGrad(dx, dout[0], in[0], p.Weight(0), p.Saved(0), tensorops.Tensor{})
	return []tensorops.Tensor{dx}
}

// WeightGrad adds the gradients of gamma and beta.
func (l *LayerNorm) WeightGrad(p *Pass, in, dout []tensorops.Tensor) {
	p.LayerNormWeightGrad(p.Grad(0), p.Grad(1), dout[0], in[0], p.Saved(0))
}

// Dropout sets numbers to 0 with a probability, in training only.
type Dropout struct{ p float64 }

// NewDropout makes a Dropout with probability p.
func NewDropout(p float64) *Dropout { return &Dropout{p} }

func (*Dropout) builtIn() {}

// Params returns none.
func (*Dropout) Params() []LayerParam { return nil }

// Forward applies dropout.
func (l *Dropout) Forward(p *Pass, in []tensorops.Tensor) []tensorops.Tensor {
	return []tensorops.Tensor{l.drop(p, in[0])}
}

func (l *Dropout) drop(p *Pass, t tensorops.Tensor) tensorops.Tensor {
	if !p.Train() || l.p == 0 {
		return t
	}
	y := p.AllocLike(t)
	p.Drop(y, t, "", l.p)
	return y
}

// InputGrad drops the same elements of the gradient.
func (l *Dropout) InputGrad(p *Pass, _, dout []tensorops.Tensor) []tensorops.Tensor {
	return []tensorops.Tensor{l.drop(p, dout[0])}
}

// WeightGrad does nothing.
func (*Dropout) WeightGrad(*Pass, []tensorops.Tensor, []tensorops.Tensor) {}
