package stages

import (
	"fmt"
	"slices"

	"github.com/troupe-ml/troupe/tensorops"
)

// wiring is how the layers [first, last) of a model hang together as a chunk. Values are
// numbered anew.
type wiring struct {
	wires  []wire // of each layer
	values int
	uses   []int // of each value: layers of the chunk that take it, and 1 if it leaves
	// The values that come and go over the chunk's edges, in the model's order; and those of
	// them whose gradients go the other way.
	ins, outs         []int
	gradIns, gradOuts []int
	output            []string // by value: see Graph.Output
	noGrad            []int    // values that layers take whose gradients nobody needs
}

// comes and goes are the values that enter and leave layers [first, last) of a model. What is
// made before and taken here comes; what is made here or comes, and is taken later, goes. A
// chunk without layers hands on what the layer behind it takes.
func (m *Model) comes(first, last int) []int {
	to := last
	if first == last {
		to = min(last+1, len(m.layers))
	}
	var vs []int
	for v, of := range m.values {
		if of.from < first && slices.ContainsFunc(of.to, func(l int) bool { return l >= first && l < to }) {
			vs = append(vs, v)
		}
	}
	return vs
}

func (m *Model) goes(first, last int) []int {
	come := m.comes(first, last)
	if first == last {
		return come
	}
	var vs []int
	for v, of := range m.values {
		here := of.from >= first && of.from < last || slices.Contains(come, v)
		if here && slices.ContainsFunc(of.to, func(l int) bool { return l >= last }) {
			vs = append(vs, v)
		}
	}
	return vs
}

func (m *Model) wiring(first, last int) (c wiring) {
	local := make(map[int]int)
	number := func(v int) int {
		n, known := local[v]
		if !known {
			n = c.values
			local[v] = n
			c.values++
			c.uses, c.output = append(c.uses, 0), append(c.output, "")
			if m.values[v].from >= first {
				c.output[n] = m.values[v].output
			}
		}
		return n
	}
	for _, v := range m.comes(first, last) {
		n := number(v)
		c.ins = append(c.ins, n)
		if m.values[v].grad {
			c.gradIns = append(c.gradIns, n)
		}
	}
	for _, w := range m.wires[first:last] {
		var here wire
		for _, v := range w.ins {
			n := number(v)
			here.ins = append(here.ins, n)
			c.uses[n]++
			if !m.values[v].grad {
				c.noGrad = append(c.noGrad, n)
			}
		}
		for _, v := range w.outs {
			here.outs = append(here.outs, number(v))
		}
		c.wires = append(c.wires, here)
	}
	for _, v := range m.goes(first, last) {
		n := number(v)
		c.outs = append(c.outs, n)
		c.uses[n]++
		if m.values[v].grad {
			c.gradOuts = append(c.gradOuts, n)
		}
	}
	return c
}

// Port is one end of the way of a tensor between two chunks: the place in the list of the
// other chunk.
type Port struct {
	Chunk int // the other one
	Slot  int // place among its inputs, or outputs
}

// Route says where what a chunk takes comes from, and where what it makes goes to: Ins in the
// order of what Forward takes, Outs of what it returns, GradIns of what a backward returns,
// GradOuts of what it takes.
type Route struct {
	Ins, Outs         []Port
	GradIns, GradOuts []Port
}

// Routes are those of the chunks that a model is cut into, in pipeline order. A value that
// several chunks take goes from the first of them to the next one, and its gradient comes back
// the same way, each adding its own: so its sum does not depend on where the model is cut.
func (m *Model) Routes(chunks []ChunkSpec) []Route {
	routes := make([]Route, len(chunks))
	type end struct{ chunk, slot, gradSlot int }
	from := make(map[int]end) // where a value was last
	for c, spec := range chunks {
		r := &routes[c]
		for _, v := range m.comes(spec.First, spec.Last) {
			at := from[v]
			routes[at.chunk].Outs[at.slot] = Port{c, len(r.Ins)}
			r.Ins = append(r.Ins, Port{at.chunk, at.slot})
			if m.values[v].grad {
				routes[at.chunk].GradOuts[at.gradSlot] = Port{c, len(r.GradIns)}
				r.GradIns = append(r.GradIns, Port{at.chunk, at.gradSlot})
			}
		}
		for _, v := range m.goes(spec.First, spec.Last) {
			from[v] = end{c, len(r.Outs), len(r.GradOuts)}
			r.Outs = append(r.Outs, Port{})
			if m.values[v].grad {
				r.GradOuts = append(r.GradOuts, Port{})
			}
		}
	}
	return routes
}

// put gives a value of the chunk to those that take it: h is held once by the caller.
func (f *inFlight) put(l *tensorops.List, c *chunk, v int, h holding) {
	if c.seen != nil {
		c.seen(v, h.t)
	}
	if name := c.output[v]; name != "" {
		f.pass.collect(name, h.t)
	}
	if h.box == nil { // after an error
		f.values[v] = h
		return
	}
	if c.uses[v] == 0 {
		h.drop(l)
	} else {
		h.box.refs += c.uses[v] - 1
	}
	f.values[v] = h
}

// gradsOf puts the gradients of a layer's outputs into its state: zeros where nobody uses an
// output, and none where none goes back.
func (f *inFlight) gradsOf(p *pass, outs []int, st *unitState) {
	for i, v := range outs {
		h := f.grads[v]
		f.grads[v] = holding{}
		if h.box == nil && p.Err() == nil && i < len(st.shapes) && st.shapes[i].dtype == tensorops.Float32 {
			t := p.Alloc(tensorops.Float32, st.shapes[i].dims...)
			p.Fill(t, 0)
			h = p.hold(t)
		}
		st.dout = append(st.dout, h)
	}
}

// addGrad adds to the gradient of a value: h is held once by the caller.
func (f *inFlight) addGrad(p *pass, v int, h holding) {
	sum, l := &f.grads[v], p.List
	switch {
	case h.box == nil || !h.t.Valid():
	case sum.box == nil:
		*sum = h
	case sum.box.refs == 1 && sum.box.t.Valid():
		l.Add(sum.t, sum.t, h.t)
		h.drop(l)
	default:
		t := l.AllocLike(sum.t)
		l.Add(t, sum.t, h.t)
		sum.drop(l)
		h.drop(l)
		*sum = p.hold(t)
	}
}

// valid leaves out what is none.
func valid(ts []tensorops.Tensor) []tensorops.Tensor {
	return slices.DeleteFunc(ts, func(t tensorops.Tensor) bool { return !t.Valid() })
}

// Only is the one tensor of a list; none if it is empty.
func Only(ts []tensorops.Tensor) tensorops.Tensor {
	if len(ts) == 0 {
		return tensorops.Tensor{}
	}
	return ts[0]
}

// addFields adds to the fields that a chunk reads.
func (c *chunk) addFields(names []string) {
	for _, name := range names {
		if !slices.Contains(c.fields, name) {
			c.fields = append(c.fields, name)
		}
	}
}

// upload brings what the chunk reads of the microbatch to the device: token ids, targets, and fields.
func (f *inFlight) upload(p *pass, c *chunk) {
	if c.needsTokens {
		p.tokens = p.ids(f.mb.Tokens)
	}
	if p.stage.NeedsTargets(c.number) {
		p.targets = p.ids(f.mb.Targets)
	}
	f.tokens, f.targets = p.tokens, p.targets
	if len(f.mb.Fields) != len(c.fields) {
		p.Fail(fmt.Errorf("%w: chunk %d reads the fields %q of the data, got %d of them for microbatch %d", ErrInput, c.number, c.fields,
			len(f.mb.Fields), f.mb.Index))
		return
	}
	for i, a := range f.mb.Fields {
		if err := a.Check(); err != nil {
			p.Fail(fmt.Errorf("field %q of microbatch %d: %w", c.fields[i], f.mb.Index, err))
			return
		}
		t := p.Alloc(a.DType(), a.Shape...)
		p.Upload(t, a.Bytes())
		f.fields = append(f.fields, p.hold(t))
	}
}

func (f *inFlight) freeFields(l *tensorops.List) { dropAll(l, &f.fields) }

// field is one that a unit may read.
func (p *pass) field(u *unit, name string) tensorops.Tensor {
	i := slices.Index(p.chunk.fields, name)
	if i < 0 || i >= len(p.flight.fields) || !slices.Contains(u.fields, name) {
		p.Fail(fmt.Errorf("%w: it asks for the field %q, and its Fields are %q", ErrInput, name, u.fields))
		return tensorops.Tensor{}
	}
	return p.flight.fields[i].t
}
