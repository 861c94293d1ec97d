package testrun

import (
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// Faulty is a layer that panics at step 5, while the device computes.
type Faulty struct{}

func (Faulty) Params() []stages.LayerParam { return nil }

func (Faulty) Forward(p *stages.Pass, in []tensorops.Tensor) []tensorops.Tensor {
	if p.Train() && p.Step() == 5 {
		p.Call("think", nil, nil, func(_, _ []tensorops.Array) error { panic("out of ideas") })
	}
	return in
}

func (Faulty) InputGrad(_ *stages.Pass, _, dout []tensorops.Tensor) []tensorops.Tensor { return dout }

func (Faulty) WeightGrad(*stages.Pass, []tensorops.Tensor, []tensorops.Tensor) {}
