package main

import (
	"fmt"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// draw is the initialization of weights.
var draw = stages.Init{Std: 0.05}

// embed looks up ids [B, T] as rows [B, T, width], and adds a row for each position.
type embed struct {
	field               string
	ids, longest, width int
}

func (l *embed) Fields() []string { return []string{l.field} }

func (l *embed) Params() []stages.LayerParam {
	return []stages.LayerParam{
		{Name: "weight", Shape: []int{l.ids, l.width}, Init: draw},
		{Name: "positions", Shape: []int{l.longest, l.width}, Init: draw},
	}
}

func (l *embed) Forward(p *stages.Pass, _ []tensorops.Tensor) []tensorops.Tensor {
	ids := p.Field(l.field)
	if p.Err() != nil {
		return nil
	}
	if ids.Dim(1) > l.longest {
		p.Fail(fmt.Errorf("%w: %q has %d ids, more than model.context = %d: set model.context to %d or more", stages.ErrInput, l.field,
			ids.Dim(1),
			l.longest, ids.Dim(1)))
		return nil
	}
	y := p.Alloc(tensorops.Float32, ids.Dim(0), ids.Dim(1), l.width)
	p.Embed(y, p.Weight(0), ids)
	p.AddPositions(y, y, p.Weight(1), tensorops.PositionOpts{Period: ids.Dim(1)})
	return []tensorops.Tensor{y}
}

func (*embed) InputGrad(*stages.Pass, []tensorops.Tensor, []tensorops.Tensor) []tensorops.Tensor {
	return nil
}

func (l *embed) WeightGrad(p *stages.Pass, _, dout []tensorops.Tensor) {
	ids := p.Field(l.field)
	p.EmbedGrad(p.Grad(0), dout[0], ids)
	p.PositionsGrad(p.Grad(1), dout[0], tensorops.PositionOpts{Period: ids.Dim(1)})
}
