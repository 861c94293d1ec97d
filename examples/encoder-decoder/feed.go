package main

import (
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// normEps is added to the variance in norms.
const normEps = 1e-5

// norms returns the parameters of a norm.
func norms(width int) []stages.LayerParam {
	return []stages.LayerParam{
		{Name: "norm.weight", Shape: []int{width}, Init: stages.Init{Const: 1}},
		{Name: "norm.bias", Shape: []int{width}},
	}
}

// feed is x + gelu(norm(x)·Uᵀ)·Dᵀ, with biases.
type feed struct{ width, inner int }

const (
	feedUp = iota + 2 // after the parameters of the norm
	feedUpBias
	feedDown
	feedDownBias
)

func (l *feed) Params() []stages.LayerParam {
	return append(norms(l.width),
		stages.LayerParam{Name: "up.weight", Shape: []int{l.inner, l.width}, Init: draw},
		stages.LayerParam{Name: "up.bias", Shape: []int{l.inner}},
		stages.LayerParam{Name: "down.weight", Shape: []int{l.width, l.inner}, Init: draw},
		stages.LayerParam{Name: "down.bias", Shape: []int{l.width}})
}

// The slots that feed saves.
const (
	fedNorm = iota
	fedStats
	fedUp
	fedGELU
	fedNormGrad
	fedUpGrad
)

func (l *feed) Forward(p *stages.Pass, in []tensorops.Tensor) []tensorops.Tensor {
	x := in[0]
	h, stats := p.AllocLike(x), p.Alloc(tensorops.Float32, x.Rows(), 2)
	up, y := p.Alloc(tensorops.Float32, x.Rows(), l.inner), p.AllocLike(x)
	act := p.AllocLike(up)
	p.LayerNorm(h, x, p.Weight(0), p.Weight(1), stats, normEps)
	p.MatMul(up, h, p.Weight(feedUp), tensorops.MatMulOpts{TransB: true, Bias: p.Weight(feedUpBias), BF16: p.BF16()})
	p.GELU(act, up)
	p.MatMul(y, act, p.Weight(feedDown), tensorops.MatMulOpts{TransB: true, Bias: p.Weight(feedDownBias), BF16: p.BF16()})
	p.Add(y, y, x)
	p.Save(fedNorm, h)
	p.Save(fedStats, stats)
	p.Save(fedUp, up)
	p.Save(fedGELU, act)
	return []tensorops.Tensor{y}
}

func (l *feed) InputGrad(p *stages.Pass, in, dout []tensorops.Tensor) []tensorops.Tensor {
	dy, up := dout[0], p.Saved(fedUp)
	dup, dh, dx := p.AllocLike(up), p.AllocLike(dy), p.AllocLike(dy)
	p.MatMul(dup, dy, p.Weight(feedDown), tensorops.MatMulOpts{BF16: p.BF16()})
	p.GELUGrad(dup, dup, up)
	p.MatMul(dh, dup, p.Weight(feedUp), tensorops.MatMulOpts{BF16: p.BF16()})
	p.LayerNormGrad(dx, dh, in[0], p.Weight(0), p.Saved(fedStats), dy)
	p.Save(fedUpGrad, dup)
	p.Save(fedNormGrad, dh)
	return []tensorops.Tensor{dx}
}

func (l *feed) WeightGrad(p *stages.Pass, in, dout []tensorops.Tensor) {
	add := tensorops.MatMulOpts{TransA: true, Accumulate: true, BF16: p.BF16()}
	p.LayerNormWeightGrad(p.Grad(0), p.Grad(1), p.Saved(fedNormGrad), in[0], p.Saved(fedStats))
	p.MatMul(p.Grad(feedUp), p.Saved(fedUpGrad), p.Saved(fedNorm), add)
	p.ColSum(p.Grad(feedUpBias), p.Saved(fedUpGrad))
	p.MatMul(p.Grad(feedDown), dout[0], p.Saved(fedGELU), add)
	p.ColSum(p.Grad(feedDownBias), dout[0])
}
