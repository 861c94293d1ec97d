package gorgonia

import (
	"fmt"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// Loss is a Gorgonia graph as a model's loss layer. Its outputs are single numbers: first the sum
// of the loss over the microbatch's samples, then one sum for each metric. Labels are fields of the
// Spec.
type Loss struct {
	layer   *Layer
	metrics []string
}

// NewLoss makes a loss layer. It reports means over samples: of the loss, and of the named metrics.
func NewLoss(spec Spec, metrics ...string) *Loss {
	spec.Outputs = 1 + len(metrics)
	return &Loss{New(spec), metrics}
}

// Params returns the Spec's parameters.
func (l *Loss) Params() []stages.LayerParam { return l.layer.Params() }

// Fields returns the Spec's fields.
func (l *Loss) Fields() []string { return l.layer.Fields() }

// WholeBackward returns true: all gradients are computed in one pass.
func (l *Loss) WholeBackward() bool { return true }

// FLOPs returns the Spec's number, or two for each parameter.
func (l *Loss) FLOPs() float64 { return l.layer.FLOPs() }

// Forward computes the sums, and keeps them for Report.
func (l *Loss) Forward(p *stages.Pass, in []tensorops.Tensor) []tensorops.Tensor {
	outs := l.layer.Forward(p, in)
	if p.Err() != nil {
		return nil
	}
	for i, t := range outs {
		if t.Len() != 1 {
			p.Fail(fmt.Errorf("%w: output %d of a loss has the shape %v: it must be a single number, the sum over the samples", ErrGraph, i,
				t.Shape()))
			return nil
		}
	}
	host := p.Host(len(outs))
	p.Call("sums", outs, nil, func(reads, _ []tensorops.Array) error {
		for i, a := range reads {
			host[i] = float64(a.Float[0])
		}
		return nil
	})
	for _, t := range outs {
		p.Free(t)
	}
	return nil
}

// InputGrad computes the gradient of the sum of the loss.
func (l *Loss) InputGrad(p *stages.Pass, in, _ []tensorops.Tensor) []tensorops.Tensor {
	x := flightOf(p).x
	if x == nil {
		p.Fail(errOrder)
		return nil
	}
	dout := make([]tensorops.Tensor, l.layer.Outputs())
	for i := range dout {
		dout[i] = p.Alloc(tensorops.Float32, x.program.outShapes[i]...)
		p.Fill(dout[i], 0)
	}
	p.Fill(dout[0], 1)
	din := l.layer.InputGrad(p, in, dout)
	for _, t := range dout {
		p.Free(t)
	}
	return din
}

// WeightGrad is never called, since the backward is whole.
func (l *Loss) WeightGrad(*stages.Pass, []tensorops.Tensor, []tensorops.Tensor) {}

// Report returns the means over samples.
func (l *Loss) Report(p *stages.Pass) stages.Report {
	host, n := p.Host(1+len(l.metrics)), float64(p.Samples())
	r := stages.Report{Sum: host[0], Targets: n}
	for i, name := range l.metrics {
		r.Metrics = append(r.Metrics, stages.Metric{Name: name, Sum: host[1+i], Count: n})
	}
	return r
}
