package stages

import (
	"fmt"
	"slices"

	"github.com/troupe-ml/troupe/tensorops"
)

// wiring describes how the layers [first, last) of a model are connected in a chunk. Values get new
// numbers.
type wiring struct {
	wires  []wire // inputs and outputs of each layer
	values int
	uses   []int // for each value, the number of layers of the chunk that take it, plus 1 if it leaves the chunk
	// The values that enter and leave over the chunk's edges, in the model's order; and those of
	// them whose gradients go in the opposite direction.
	ins, outs         []int
	gradIns, gradOuts []int
	output            []string // by value: see Graph.Output
	noGrad            []int    // values that layers take whose gradients are not needed
}

// comes and goes return the values that enter and leave the layers [first, last) of a model. A
// value enters if it is made before them and taken in them. A value leaves if it is made in them or
// enters, and is taken later. A chunk without layers passes on what later chunks take.
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

// Port is one end of a tensor's path between two chunks: its slot in the list of the other chunk.
type Port struct {
	Chunk int // the other chunk
	Slot  int // index among that chunk's inputs or outputs
}

// Route says where a chunk's inputs come from and where its outputs go. Ins has the order of
// Forward's arguments, Outs that of its results. GradIns has the order of a backward's results,
// GradOuts that of its arguments.
type Route struct {
	Ins, Outs         []Port
	GradIns, GradOuts []Port
}

// Routes returns the routes of the chunks into which a model is cut, in pipeline order. A value
// that several chunks take goes from the first of them to the next one. Its gradient comes back the
// same way, and each chunk adds its own. So the sum does not depend on where the model is cut.
func (m *Model) Routes(chunks []ChunkSpec) []Route {
	routes := make([]Route, len(chunks))
	type end struct{ chunk, slot, gradSlot int }
	from := make(map[int]end) // the last chunk that had a value
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

// put passes a value of the chunk to the layers that take it; the caller holds h once.
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

// gradsOf puts the gradients of a layer's outputs into its state: zeros if no layer uses an output,
// and an invalid tensor if it has no gradient.
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

// addGrad adds to the gradient of a value; the caller holds h once.
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

// valid removes invalid tensors.
func valid(ts []tensorops.Tensor) []tensorops.Tensor {
	return slices.DeleteFunc(ts, func(t tensorops.Tensor) bool { return !t.Valid() })
}

// Only returns the single tensor of a list; an invalid tensor if the list is empty.
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

// upload copies what the chunk reads of the microbatch to the device: token ids, targets, and
// fields.
func (f *inFlight) upload(p *pass, c *chunk) {
	if c.needsTokens {
		p.tokens = p.ids(f.mb.Tokens)
	}
	if p.stage.NeedsTargets(c.number) {
		p.targets = p.ids(f.mb.Targets)
	}
	f.tokens, f.targets = p.tokens, p.targets
	f.uploadStarts(p, c)
	names := p.stage.Fields(c.number)
	if p.stage.opts.Distill != nil && !f.mb.Train { // a validation has no teacher
		names, f.mb.Fields = nil, nil
	}
	if len(f.mb.Fields) != len(names) {
		p.Fail(fmt.Errorf("%w: chunk %d reads the fields %q of the data, but got %d fields for microbatch %d", ErrInput, c.number, names,
			len(f.mb.Fields), f.mb.Index))
		return
	}
	if p.stage.model.language() {
		return // the loss reads its field in Go
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

// field returns a field that a unit may read.
func (p *pass) field(u *unit, name string) tensorops.Tensor {
	i := slices.Index(p.chunk.fields, name)
	if i < 0 || i >= len(p.flight.fields) || !slices.Contains(u.fields, name) {
		p.Fail(fmt.Errorf("%w: it reads the field %q, but its Fields are %q", ErrInput, name, u.fields))
		return tensorops.Tensor{}
	}
	return p.flight.fields[i].t
}
