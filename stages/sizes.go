package stages

import (
	"errors"
	"fmt"

	"github.com/troupe-ml/troupe/tensorops"
)

// Sizes of a model for those who plan: what its layers cost, and what they pass on.

// FLOPs estimates each layer's floating-point operations for a forward of a sample (in a
// language model, of a token at T positions), a multiply-add as two.
func (m *Model) FLOPs(positions int) []float64 {
	embedding, layer, head := 0.0, 0.0, 0.0
	if m.language() {
		embedding, layer, head = m.Config.FLOPs(positions)
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
		default:
			flops[i] = layer
		}
	}
	return flops
}

// Parameters is the number of weights, a tied one counted once.
func (m *Model) Parameters() int64 {
	var n int64
	for _, p := range m.Params {
		n += int64(p.Len())
	}
	return n
}

// WholeLayers names the layers whose input and weight gradients can't be computed apart.
func (m *Model) WholeLayers() (names []string) {
	for _, l := range m.layers {
		if u, ok := l.(*unit); ok && u.whole {
			names = append(names, u.name)
		}
	}
	return names
}

// Names are those of the layers of other families than the language models'; "" in these.
func (m *Model) Names() []string {
	names := make([]string, len(m.layers))
	for i, l := range m.layers {
		if u, ok := l.(*unit); ok {
			names[i] = u.name
		}
	}
	return names
}

// Sample makes a microbatch of B samples with zeros in every field, for dry runs. A dimension
// that differs from sample to sample is taken to be Config.Context, or 1.
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

// Shape is that of a value between layers.
type Shape struct {
	DType tensorops.DType
	Dims  []int
}

// Bytes is its size.
func (s Shape) Bytes() int64 {
	n := int64(s.DType.Size())
	for _, d := range s.Dims {
		n *= int64(d)
	}
	return n
}

// Shapes are those of all values of another model than a language model, for a microbatch of
// B samples, found by recording its forward without executing it. So it also finds layers that
// don't fit their neighbours.
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
			return nil, errors.Join(fmt.Errorf("%w: a layer reads the field %q, which the data don't have", ErrModel, name), s.Close())
		}
		mb.Fields = append(mb.Fields, f)
	}
	s.Forward(l, 0, &mb)
	return shapes, errors.Join(tensorops.Run(s.stream, l), s.Close())
}

// Takes are the values that a chunk takes in a forward, in their order, and those whose
// gradients it takes in a backward: places in what Shapes returns.
func (m *Model) Takes(c ChunkSpec) (ins, gradOuts []int) {
	for _, v := range m.goes(c.First, c.Last) {
		if m.values[v].grad {
			gradOuts = append(gradOuts, v)
		}
	}
	return m.comes(c.First, c.Last), gradOuts
}

// Gives are the values that a chunk passes on, as Takes numbers them.
func (m *Model) Gives(c ChunkSpec) []int { return m.goes(c.First, c.Last) }
