package gorgonia

import (
	"fmt"

	"gorgonia.org/tensor"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// Spec declares a layer.
type Spec struct {
	Build   Build
	Params  []stages.LayerParam
	Outputs int      // number of outputs; 0: one
	Fields  []string // fields of the data that the graph takes as further inputs, after the layer's inputs
	FLOPs   float64  // operations of a forward for one sample, used to spread the layers; 0: two for each parameter
}

// Layer is a Gorgonia graph as a stages.Layer, on the CPU.
type Layer struct {
	spec  Spec
	model *model
}

// New makes a layer. Graphs are built when microbatches arrive; Check builds one in advance.
func New(spec Spec) *Layer {
	params := make([]weight, len(spec.Params))
	for i, p := range spec.Params {
		params[i] = weight{p.Name, p.Shape}
	}
	return &Layer{spec, newModel(spec.Build, params, tensor.Float32)}
}

// Check builds the graph for inputs and fields of the given shapes and returns the shapes of its
// outputs. The arrays need no numbers, unless they are Int.
func (l *Layer) Check(in ...tensorops.Array) (out [][]int, err error) {
	ins := make([]input, len(in))
	for i, a := range in {
		ins[i] = input{a.DType(), a.Shape, a.DType() == tensorops.Float32}
	}
	x, err := l.model.take(ins)
	if err != nil {
		return nil, err
	}
	defer l.model.give(x)
	return x.program.outShapes, nil
}

// Params returns the Spec's parameters.
func (l *Layer) Params() []stages.LayerParam { return l.spec.Params }

// Outputs returns the number of outputs.
func (l *Layer) Outputs() int { return max(1, l.spec.Outputs) }

// Fields returns the Spec's fields.
func (l *Layer) Fields() []string { return l.spec.Fields }

// WholeBackward returns true: all gradients are computed in one pass.
func (l *Layer) WholeBackward() bool { return true }

// FLOPs returns the Spec's number, or two for each parameter.
func (l *Layer) FLOPs() float64 {
	if l.spec.FLOPs > 0 {
		return l.spec.FLOPs
	}
	n := 1.0
	for _, p := range l.spec.Params {
		size := 2.0
		for _, d := range p.Shape {
			size *= float64(d)
		}
		n += size
	}
	return n
}

// flight holds a microbatch's graph from its forward to its backward.
type flight struct{ x *instance }

// flightOf returns the flight of the Pass.
func flightOf(p *stages.Pass) *flight {
	f, ok := (*p.State()).(*flight)
	if !ok {
		f = &flight{}
		*p.State() = f
	}
	return f
}

// operands returns what the graph takes: inputs, fields, then parameters, all contiguous.
func (l *Layer) operands(p *stages.Pass, in []tensorops.Tensor) []tensorops.Tensor {
	var ts []tensorops.Tensor
	for i, t := range in {
		ts = append(ts, contiguous(p, i, t))
	}
	for _, name := range l.spec.Fields {
		ts = append(ts, contiguous(p, len(ts), p.Field(name)))
	}
	for i := range l.spec.Params {
		ts = append(ts, p.Weight(i))
	}
	return ts
}

// contiguous copies a tensor that has gaps between its rows, and saves the copy in a slot.
func contiguous(p *stages.Pass, slot int, t tensorops.Tensor) tensorops.Tensor {
	if p.Err() != nil || t.Contiguous() {
		return t
	}
	if saved := p.Saved(slot); saved.Valid() {
		return saved
	}
	c := p.Alloc(t.DType(), t.Shape()...)
	p.Copy(c.Matrix(), t.Matrix())
	p.Save(slot, c)
	return c
}

// inputs describes the graph that the operands need.
func (l *Layer) inputs(p *stages.Pass, own int, ts []tensorops.Tensor) ([]input, bool) {
	in := make([]input, len(ts)-len(l.spec.Params))
	grads := len(l.spec.Params) > 0
	for i := range in {
		in[i] = input{ts[i].DType(), ts[i].Shape(), i < own && p.WantsGrad(i)}
		grads = grads || in[i].grad
	}
	return in, grads
}

// Forward runs the graph's forward part.
func (l *Layer) Forward(p *stages.Pass, in []tensorops.Tensor) []tensorops.Tensor {
	ts := l.operands(p, in)
	if p.Err() != nil {
		return nil
	}
	f := flightOf(p)
	ins, grads := l.inputs(p, len(in), ts)
	if f.x == nil || f.x.key != keyOf(ins) {
		x, err := l.model.take(ins)
		if err != nil {
			p.Fail(err)
			return nil
		}
		f.x = x
	}
	x := f.x
	back := p.Train() && grads && !p.Recompute() // a backward follows
	if !back {
		f.x = nil
	}
	if n := len(x.program.out); n != l.Outputs() {
		p.Fail(fmt.Errorf("%w: Build returned %d outputs, but the layer declares %d", ErrGraph, n, l.Outputs()))
		return nil
	}
	outs := make([]tensorops.Tensor, len(x.program.out))
	for i, shape := range x.program.outShapes {
		outs[i] = p.Alloc(tensorops.Float32, shape...)
	}
	p.Call("graph", ts, outs, func(reads, writes []tensorops.Array) error {
		results, err := x.forward(reads[:len(ins)], reads[len(ins):])
		if err != nil {
			return err
		}
		for i, r := range results {
			copy(writes[i].Float, r.Float)
		}
		if !back {
			l.model.give(x)
		}
		return nil
	})
	return outs
}

// InputGrad runs the graph's backward part, which also adds the gradients of the weights.
func (l *Layer) InputGrad(p *stages.Pass, in, dout []tensorops.Tensor) []tensorops.Tensor {
	f := flightOf(p)
	x := f.x
	f.x = nil
	ts := l.operands(p, in)
	if p.Err() != nil {
		return nil
	}
	if x == nil {
		p.Fail(errOrder)
		return nil
	}
	reads := make([]tensorops.Tensor, 0, len(dout)+len(ts))
	for i, d := range dout {
		reads = append(reads, contiguous(p, len(ts)+i, d))
	}
	reads = append(reads, ts...) // the graph still uses them
	din := make([]tensorops.Tensor, len(in))
	var writes []tensorops.Tensor
	for i, t := range in {
		if p.WantsGrad(i) && x.inputs[i].grad {
			din[i] = p.Alloc(tensorops.Float32, t.Shape()...)
			writes = append(writes, din[i])
		}
	}
	for i := range l.spec.Params {
		writes = append(writes, p.Grad(i))
	}
	p.Call("graph's gradients", reads, writes, func(reads, writes []tensorops.Array) error {
		dins := make([]tensorops.Array, len(x.inputs))
		for i, d := range din {
			if d.Valid() {
				dins[i], writes = writes[0], writes[1:]
			}
		}
		if err := l.model.backward(x, reads[:len(dout)], dins, writes); err != nil {
			return err
		}
		l.model.give(x)
		return nil
	})
	return din
}

// WeightGrad is never called, since the backward is whole.
func (l *Layer) WeightGrad(*stages.Pass, []tensorops.Tensor, []tensorops.Tensor) {}
