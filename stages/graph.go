package stages

import (
	"fmt"
	"slices"
	"strings"
)

// Graph is a model being built: its layers in order, each with the outputs of earlier layers that
// it takes. The layout uses this order. If several layers take an output, its gradients are added
// from the last of them to the first. The first error is kept, and NewModel or Build returns it.
type Graph struct {
	model *Model
	names map[string]bool
	err   error
}

// Value is an output of a layer in a Graph.
type Value struct {
	graph *Graph
	index int
}

// value is an output of a layer, with the layers that take it.
type value struct {
	from   int   // layer
	to     []int // layers, ascending; a layer that takes it twice occurs twice
	grad   bool  // it has a gradient
	output string
}

// wire holds a layer's inputs and outputs.
type wire struct{ ins, outs []int }

// Add appends a layer and returns its outputs. The layer's parameters are named after it.
func (g *Graph) Add(name string, l Layer, in ...Value) []Value {
	return g.add(SymbolDecoder, name, l, in)
}

// Input appends a layer whose output is a field of the data. In the layout it is an E.
func (g *Graph) Input(field string) Value {
	name := field
	for i := 2; g.names[name]; i++ {
		name = fmt.Sprintf("%s.%d", field, i)
	}
	return g.one(g.add(SymbolEmbedding, name, inputLayer{field}, nil))
}

// Embed appends a layer that reads data, as Input does. In the layout it is an E, too.
func (g *Graph) Embed(name string, l Layer, in ...Value) []Value {
	return g.add(SymbolEmbedding, name, l, in)
}

// Loss appends the last layer. In the layout it is the L.
func (g *Graph) Loss(name string, l LossLayer, in ...Value) {
	g.add(SymbolLoss, name, l, in)
}

// Output lets forward-only runs collect a value under a name.
func (g *Graph) Output(name string, v Value) {
	if g.err == nil && g.owns(v) {
		g.model.values[v.index].output = name
	}
}

// Fail records an error: the model can't be built.
func (g *Graph) Fail(format string, args ...any) {
	if g.err == nil {
		g.err = fmt.Errorf("%w: "+format, append([]any{ErrModel}, args...)...)
	}
}

func (g *Graph) one(vs []Value) Value {
	if len(vs) == 0 {
		return Value{graph: g}
	}
	return vs[0]
}

func (g *Graph) owns(v Value) bool {
	ok := v.graph == g && v.index < len(g.model.values)
	if !ok {
		g.Fail("a layer takes a value of another model")
	}
	return ok
}

// maxLayerName limits the length of a layer's name, in bytes.
const maxLayerName = 128

func (g *Graph) add(symbol byte, name string, l Layer, in []Value) []Value {
	m := g.model
	switch {
	case g.err != nil:
		return g.outputs(l)
	case l == nil:
		g.Fail("layer %q is nil", name)
	case name == "" || len(name) > maxLayerName || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' }):
		g.Fail("%.100q cannot be the name of a layer: use at most %d plain characters", name, maxLayerName)
	case g.names[name]:
		g.Fail("two layers are called %q", name)
	case m.hasLoss():
		g.Fail("layer %q comes after the loss, which is the last layer", name)
	case len(m.layers) == MaxLayers:
		g.Fail("the model has more than %d layers", MaxLayers)
	}
	for _, v := range in {
		g.owns(v)
	}
	if g.err != nil {
		return g.outputs(l)
	}
	g.names[name] = true
	u := newUnit(symbol, name, l)
	at := len(m.layers)
	var w wire
	anyGrad := false
	for _, v := range in {
		from := &m.values[v.index]
		from.to = append(from.to, at)
		w.ins = append(w.ins, v.index)
		u.wants = append(u.wants, from.grad)
		anyGrad = anyGrad || from.grad
	}
	for _, p := range l.Params() {
		g.addParam(u, p)
	}
	var out []Value
	for i := range u.outs {
		grad := anyGrad || len(u.params) > 0
		if n, ok := l.(NoGrads); ok && n.NoGrad(i) {
			grad = false
		}
		w.outs = append(w.outs, len(m.values))
		out = append(out, Value{g, len(m.values)})
		m.values = append(m.values, value{from: at, grad: grad})
	}
	m.layers, m.wires = append(m.layers, u), append(m.wires, w)
	return out
}

// outputs returns the outputs that a layer would have had, for one that was not added because of an
// error.
func (g *Graph) outputs(l Layer) []Value {
	n := 1
	if o, ok := l.(Outputs); ok {
		n = max(1, o.Outputs())
	}
	return slices.Repeat([]Value{{graph: g}}, n)
}

func (g *Graph) addParam(u *unit, p LayerParam) {
	name := u.name + "." + p.Name
	n := 1
	for _, d := range p.Shape {
		if d < 1 || d > maxLayerParam/n {
			g.Fail("parameter %q has shape %v: it must have from 1 to %d elements", name, p.Shape, maxLayerParam)
			return
		}
		n *= d
	}
	if p.Name == "" || g.names["\x00"+name] {
		g.Fail("layer %q has two parameters called %q, or one without a name", u.name, p.Name)
		return
	}
	g.names["\x00"+name] = true
	to := g.model.add(name, p.Init, p.Shape...)
	to.param.Decay = len(p.Shape) > 1 && !p.NoDecay
	u.params = append(u.params, to)
}

func (m *Model) hasLoss() bool {
	return len(m.layers) > 0 && m.layers[len(m.layers)-1].symbol() == SymbolLoss
}

// chain wires a language model: each layer takes the output of the layer before it.
func (m *Model) chain() {
	last := len(m.layers) - 1
	for i := range m.layers {
		var w wire
		if i > 0 {
			w.ins = []int{i - 1}
		}
		if i < last {
			w.outs = []int{i}
			m.values = append(m.values, value{from: i, to: []int{i + 1}, grad: true})
		}
		m.wires = append(m.wires, w)
	}
}

// check checks the graph as a whole.
func (g *Graph) check() error {
	m := g.model
	if g.err == nil && !m.hasLoss() {
		g.Fail("the model has no loss: add the last layer with Graph.Loss")
	}
	if g.err != nil {
		return g.err
	}
	for i, v := range m.values {
		if len(v.to) == 0 && v.output == "" {
			u := m.layers[v.from].(*unit)
			g.Fail("no layer takes output %d of layer %q", slices.Index(m.wires[v.from].outs, i), u.name)
		}
	}
	return g.err
}
