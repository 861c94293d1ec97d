package stages

import (
	"fmt"
	"math"

	"github.com/troupe-ml/troupe/tensorops"
)

// Activation is a function of each number: "gelu" (its tanh form, Hendrycks and Gimpel 2016),
// "relu" or "tanh". The latter two are computed in Go, on the CPU only.
type Activation string

// activations holds f(x), and dy·f'(x) as a function of x.
var activations = map[Activation]struct {
	f    func(x float32) float32
	grad func(dy, x float32) float32
}{
	"relu": {func(x float32) float32 { return max(x, 0) }, func(dy, x float32) float32 {
		if x > 0 {
			return dy
		}
		return 0
	}},
	"tanh": {func(x float32) float32 { return float32(math.Tanh(float64(x))) }, func(dy, x float32) float32 {
		y := math.Tanh(float64(x))
		return float32(float64(dy) * (1 - float64(y*y))) // not fused with the addition, as the compiler would on arm64
	}},
}

func (a Activation) unknown(p *Pass) bool {
	if _, ok := activations[a]; ok || a == "gelu" {
		return false
	}
	p.Fail(fmt.Errorf("%w: unknown activation %q: choose gelu, relu or tanh", ErrModel, string(a)))
	return true
}

func (a Activation) forward(p *Pass, y, x tensorops.Tensor) {
	switch {
	case a.unknown(p):
	case a == "gelu":
		p.GELU(y, x)
	default:
		f := activations[a].f
		p.Call(string(a), []tensorops.Tensor{x}, []tensorops.Tensor{y}, func(reads, writes []tensorops.Array) error {
			for i, v := range reads[0].Float {
				writes[0].Float[i] = f(v)
			}
			return nil
		})
	}
}

// grad records dx = dy·f'(x); dx may be dy.
func (a Activation) grad(p *Pass, dx, dy, x tensorops.Tensor) {
	switch {
	case a.unknown(p):
	case a == "gelu":
		p.GELUGrad(dx, dy, x)
	default:
		f := activations[a].grad
		p.Call(string(a)+" gradient", []tensorops.Tensor{dy, x}, []tensorops.Tensor{dx}, func(reads, writes []tensorops.Array) error {
			for i, v := range reads[1].Float {
				writes[0].Float[i] = f(reads[0].Float[i], v)
			}
			return nil
		})
	}
}

// activationLayer is an Activation as a layer.
type activationLayer struct{ act Activation }

// NewActivation makes a layer that applies an activation.
func NewActivation(a Activation) Layer { return activationLayer{a} }

func (activationLayer) builtIn()             {}
func (activationLayer) Params() []LayerParam { return nil }

func (l activationLayer) Forward(p *Pass, in []tensorops.Tensor) []tensorops.Tensor {
	y := p.AllocLike(in[0])
	l.act.forward(p, y, in[0])
	return []tensorops.Tensor{y}
}

func (l activationLayer) InputGrad(p *Pass, in, dout []tensorops.Tensor) []tensorops.Tensor {
	dx := p.AllocLike(in[0])
	l.act.grad(p, dx, dout[0], in[0])
	return []tensorops.Tensor{dx}
}

func (activationLayer) WeightGrad(*Pass, []tensorops.Tensor, []tensorops.Tensor) {}
