package stages

import (
	"errors"
	"fmt"

	"github.com/troupe-ml/troupe/tensorops"
)

// The sizes of a model, for plans: the costs of its layers and the sizes of their values.

// FLOPs estimates the floating-point operations of each layer's forward for one sample (in a
// language model, for one token at a sequence length of positions). A multiply-add counts as two.
func (m *Model) FLOPs(positions int) []float64 {
	embedding, head := 0.0, 0.0
	if m.language() {
		embedding, _, head = m.Config.FLOPs(positions)
	}
	flops := make([]float64, len(m.layers))
	for i, l := range m.layers {
		u, own := l.(*unit)
		switch {
		case own:
			flops[i] = u.flops()
		case l.symbol() == SymbolEmbedding:
			flops[i] = embedding
		case l.symbol() == SymbolLoss:
			flops[i] = head
		case l.symbol() == SymbolMTP:
			flops[i] = m.Config.MTPFLOPs(positions)
		default: // the layers of a model may differ
			l := m.Config.layer(i - 1)
			flops[i] = l.flops(m.Config.Hidden, positions)
		}
	}
	return flops
}

// Parameters returns the number of weights; a tied weight counts once.
func (m *Model) Parameters() int64 {
	var n int64
	for _, p := range m.Params {
		n += int64(p.Len())
	}
	return n
}

// WholeLayers returns the names of the layers that can't compute input and weight gradients
// separately.
func (m *Model) WholeLayers() (names []string) {
	for _, l := range m.layers {
		if u, ok := l.(*unit); ok && u.whole {
			names = append(names, u.name)
		}
	}
	return names
}

// Names returns the names of the layers of a model that is not a language model; "" for each layer
// of a language model.
func (m *Model) Names() []string {
	names := make([]string, len(m.layers))
	for i, l := range m.layers {
		if u, ok := l.(*unit); ok {
			names[i] = u.name
		}
	}
	return names
}

// Sample makes a microbatch of B samples with zeros in every field, for dry runs. A dimension that
// varies between samples is taken as Config.Context, or 1.
func (m *Model) Sample(samples int) map[string]tensorops.Array {
	fields := make(map[string]tensorops.Array)
	for _, f := range m.Config.Fields {
		shape := []int{samples}
		for _, d := range f.Shape {
			if d < 0 {
				d = max(m.Config.Context, 1)
			}
			shape = append(shape, d)
		}
		fields[f.Name] = tensorops.NewArray(f.DType, shape)
	}
	return fields
}

// Shape is the shape and type of a value between layers.
type Shape struct {
	DType tensorops.DType
	Dims  []int
}

// Bytes returns its size in bytes.
func (s Shape) Bytes() int64 {
	n := int64(s.DType.Size())
	for _, d := range s.Dims {
		n *= int64(d)
	}
	return n
}

// Shapes returns the shapes of all values of a model that is not a language model, for a microbatch
// of B samples. It records a forward without running it, so it also finds layers that don't fit
// their neighbors.
func (m *Model) Shapes(samples int) ([]Shape, error) {
	s, err := NewStage(m, tensorops.NewDryStream(), []ChunkSpec{{0, 0, len(m.layers)}}, Options{Inference: true})
	if err != nil {
		return nil, err
	}
	shapes := make([]Shape, len(m.values))
	c := s.chunks[0]
	c.seen = func(v int, t tensorops.Tensor) { shapes[v] = Shape{t.DType(), t.Shape()} }
	l := s.stream.NewList()
	mb := Microbatch{Step: 1, Sequences: samples, Positions: 1, Train: true}
	fields := m.Sample(samples)
	for _, name := range c.fields {
		f, ok := fields[name]
		if !ok {
			return nil, errors.Join(fmt.Errorf("%w: a layer reads the field %q, which the data does not have", ErrModel, name), s.Close())
		}
		mb.Fields = append(mb.Fields, f)
	}
	s.Forward(l, 0, &mb)
	return shapes, errors.Join(tensorops.Run(s.stream, l), s.Close())
}

// Takes returns the values that a chunk takes in a forward, in order, and those whose gradients it
// takes in a backward, as indexes into the result of Shapes.
func (m *Model) Takes(c ChunkSpec) (ins, gradOuts []int) {
	for _, v := range m.goes(c.First, c.Last) {
		if m.values[v].grad {
			gradOuts = append(gradOuts, v)
		}
	}
	return m.comes(c.First, c.Last), gradOuts
}

// Gives returns the values that a chunk passes on, numbered like those of Takes.
func (m *Model) Gives(c ChunkSpec) []int { return m.goes(c.First, c.Last) }
