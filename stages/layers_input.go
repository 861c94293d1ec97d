package stages

import (
	"fmt"

	"github.com/troupe-ml/troupe/tensorops"
)

// builtIn marks this package's own layers.
type builtIn interface{ builtIn() }

// inputLayer outputs a field of the data.
type inputLayer struct{ name string }

func (inputLayer) builtIn()             {}
func (inputLayer) Params() []LayerParam { return nil }
func (l inputLayer) Fields() []string   { return []string{l.name} }
func (inputLayer) FLOPs() float64       { return 1 }

func (l inputLayer) Forward(p *Pass, _ []tensorops.Tensor) []tensorops.Tensor {
	return []tensorops.Tensor{p.Field(l.name)}
}

func (inputLayer) InputGrad(*Pass, []tensorops.Tensor, []tensorops.Tensor) []tensorops.Tensor {
	return nil
}

func (inputLayer) WeightGrad(*Pass, []tensorops.Tensor, []tensorops.Tensor) {}

// flat is an inputLayer with one row for each sample.
type flat struct {
	inputLayer
	width int
}

func (l *flat) Width() int { return l.width }

func (l *flat) Forward(p *Pass, _ []tensorops.Tensor) []tensorops.Tensor {
	x := p.Field(l.name)
	if p.Err() == nil && x.Len() != p.Samples()*l.width {
		p.Fail(fmt.Errorf("%w: field %q is %v, but the model takes %d numbers of each sample", ErrInput, l.name, x, l.width))
		return nil
	}
	return []tensorops.Tensor{x.View(p.Samples(), l.width)}
}

// Embed looks up ids as rows of a weight.
type Embed struct {
	field    string
	ids, out int
}

// NewEmbed makes a layer that turns a field of ids, [B, …] from 0 to ids−1, into rows of out
// numbers, [B, …, out].
func NewEmbed(field string, ids, out int) (*Embed, error) {
	if ids < 1 || ids > MaxVocab || out < 1 || out > MaxHidden {
		return nil, fmt.Errorf("%w: %d ids of width %d: want 1 to %d ids, and a width of 1 to %d", ErrModel, ids, out, MaxVocab, MaxHidden)
	}
	return &Embed{field, ids, out}, nil
}

func (*Embed) builtIn()           {}
func (l *Embed) Fields() []string { return []string{l.field} }

// Width returns the size of the output's last dimension.
func (l *Embed) Width() int { return l.out }

// Params returns the weight, [ids, out].
func (l *Embed) Params() []LayerParam {
	return []LayerParam{{Name: "weight", Shape: []int{l.ids, l.out}, Init: normalInit}}
}

// Forward looks up the ids.
func (l *Embed) Forward(p *Pass, _ []tensorops.Tensor) []tensorops.Tensor {
	ids := p.Field(l.field)
	y := p.Alloc(tensorops.Float32, append(ids.Shape(), l.out)...)
	p.Embed(y, p.Weight(0), ids)
	return []tensorops.Tensor{y}
}

// InputGrad does nothing: ids have no gradient.
func (*Embed) InputGrad(*Pass, []tensorops.Tensor, []tensorops.Tensor) []tensorops.Tensor { return nil }

// WeightGrad adds to the rows that were looked up.
func (l *Embed) WeightGrad(p *Pass, _, dout []tensorops.Tensor) {
	p.EmbedGrad(p.Grad(0), dout[0], p.Field(l.field))
}
