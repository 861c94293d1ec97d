package cli

import (
	"errors"
	"fmt"
	"math"
	"os"
	"sync/atomic"

	"github.com/troupe-ml/troupe/data/samples"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// faultStep is the step in which the fault happens.
const faultStep = 5

// mine is a custom program with a layer and data that fail as the environment variable FAULT says.
func mine() {
	fault := os.Getenv("FAULT")
	stages.RegisterLayer("faulty", func(o *stages.LayerOptions) (stages.Layer, error) {
		if fault == "build" {
			panic("out of ideas")
		}
		return &faulty{fault: fault, width: o.Int("width", o.Width)}, nil
	})
	stages.RegisterLayer("whole", func(o *stages.LayerOptions) (stages.Layer, error) {
		return &whole{faulty{width: o.Width}}, nil
	})
	samples.Register("numbers", func(samples.Options) (train, val samples.Dataset, err error) {
		if fault == "open" {
			return nil, nil, errors.New("the archive is locked")
		}
		return &numbers{fault: fault, n: 256}, &numbers{n: 32}, nil
	})
	Main()
}

// faulty is y = x + b.
type faulty struct {
	fault string
	width int
}

func (l *faulty) Params() []stages.LayerParam {
	return []stages.LayerParam{{Name: "bias", Shape: []int{l.width}}}
}

func (l *faulty) now(p *stages.Pass, fault string) bool {
	return l.fault == fault && p.Train() && p.Step() == faultStep
}

func (l *faulty) Forward(p *stages.Pass, in []tensorops.Tensor) []tensorops.Tensor {
	if l.now(p, "panic") || l.fault == "panic in a validation" && !p.Train() && p.Step() >= 4 {
		panic("out of ideas")
	}
	if l.now(p, "output") {
		return nil
	}
	y := p.AllocLike(in[0])
	p.Call("add", []tensorops.Tensor{in[0], p.Weight(0)}, []tensorops.Tensor{y}, func(reads, writes []tensorops.Array) error {
		switch {
		case l.now(p, "call panic"):
			panic("out of ideas")
		case l.now(p, "call error"):
			return errors.New("out of ideas")
		}
		for i, x := range reads[0].Float {
			writes[0].Float[i] = x + reads[1].Float[i%l.width]
		}
		if l.now(p, "nan") {
			writes[0].Float[0] = float32(math.NaN())
		}
		return nil
	})
	return []tensorops.Tensor{y}
}

func (l *faulty) InputGrad(p *stages.Pass, in, dout []tensorops.Tensor) []tensorops.Tensor {
	switch {
	case l.now(p, "gradient"):
		return []tensorops.Tensor{p.Alloc(tensorops.Float32, l.width, in[0].Rows())}
	case l.now(p, "gradient panic"):
		panic("out of ideas")
	case l.now(p, "free"):
		p.Free(in[0])
	}
	return dout
}

func (l *faulty) WeightGrad(p *stages.Pass, _, dout []tensorops.Tensor) {
	if l.now(p, "weight panic") {
		panic("out of ideas")
	}
	p.ColSum(p.Grad(0), dout[0])
}

// whole is the same layer, with both gradients in one pass.
type whole struct{ faulty }

func (*whole) WholeBackward() bool { return true }

func (l *whole) InputGrad(p *stages.Pass, in, dout []tensorops.Tensor) []tensorops.Tensor {
	l.WeightGrad(p, in, dout)
	return l.faulty.InputGrad(p, in, dout)
}

// numbers are samples of 4 numbers; the label is the index of the largest.
type numbers struct {
	fault string
	n     int
	reads atomic.Int64
}

// laterReads is the number of sample reads before a late fault: one pass over all samples, which identifies the
// data, and some steps of 8.
const laterReads = 256 + 8*(faultStep-1)

func (d *numbers) Len() int { return d.n }

func (d *numbers) Fields() []samples.Field {
	return []samples.Field{{Name: "x", Shape: []int{4}}, {Name: "y", DType: tensorops.Int32, Classes: 4}}
}

func (d *numbers) At(i int) (samples.Sample, error) {
	reads := d.reads.Add(1)
	switch {
	case d.fault == "read" && i == 128, d.fault == "read later" && reads > laterReads:
		return nil, fmt.Errorf("shelf %d is empty", i)
	case d.fault == "read panic" && i == 128, d.fault == "read panic later" && reads > laterReads:
		panic("out of ideas")
	}
	x := tensorops.NewArray(tensorops.Float32, []int{4})
	best := 0
	for k := range x.Float {
		if x.Float[k] = float32(i * (k + 3) % 11); x.Float[k] > x.Float[best] {
			best = k
		}
	}
	label := int32(best)
	if d.fault == "label" && i == 128 || d.fault == "label later" && reads > laterReads {
		label = 4
	}
	if d.fault == "shape" && i == 128 {
		x.Shape = []int{2, 2}
	}
	return samples.Sample{x, {Shape: []int{}, Int: []int32{label}}}, nil
}
