package stages

import (
	"math"

	"github.com/troupe-ml/troupe/tensorops"
)

// expertAdapter is the low-rank part of one kind of matrix of all experts of a layer: s·B[e]·(A[e]·x) for expert e. A is [E, rank, in],
// B [E, out, rank]; a rank of an expert group has those of its own experts. Nothing of it is kept from one pass to the next: its products
// are small beside those of the experts.
type expertAdapter struct {
	a, b         use
	rank         int
	alpha, scale float64
}

func (a *expertAdapter) uses() []use {
	if a == nil {
		return nil
	}
	return []use{a.a, a.b}
}

// down returns s·A·x of the experts' rows.
func (a *expertAdapter) down(c *pass, s *expertState, x tensorops.Tensor) tensorops.Tensor {
	return a.product(c, s, x, a.a, tensorops.GroupedOpts{TransB: true})
}

// back returns s·Bᵀ·dy, the gradient of A·x.
func (a *expertAdapter) back(c *pass, s *expertState, dy tensorops.Tensor) tensorops.Tensor {
	return a.product(c, s, dy, a.b, tensorops.GroupedOpts{})
}

func (a *expertAdapter) product(c *pass, s *expertState, x tensorops.Tensor, w use, o tensorops.GroupedOpts) tensorops.Tensor {
	h := c.Alloc(c.inner(), x.Rows(), a.rank)
	offsets, sources := s.rowOffsets()
	o.BF16, o.Sources = c.stage.opts.BF16, sources
	c.GroupedMatMul(h, x, c.weight(w), offsets, o)
	c.scaled(h, a.scale)
	return h
}

// forward adds the adapter's part to y.
func (a *expertAdapter) forward(c *pass, s *expertState, y, x tensorops.Tensor) {
	if a == nil {
		return
	}
	h := a.down(c, s, x)
	c.addGrouped(y, h, c.weight(a.b), s, true)
	c.Free(h)
}

// inputGrad adds the adapter's part to dx.
func (a *expertAdapter) inputGrad(c *pass, s *expertState, dx, dy tensorops.Tensor) {
	if a == nil {
		return
	}
	g := a.back(c, s, dy)
	c.addGrouped(dx, g, c.weight(a.a), s, false)
	c.Free(g)
}

// weightGrad adds to the gradients of A and B.
func (a *expertAdapter) weightGrad(c *pass, s *expertState, x, dy tensorops.Tensor) {
	if a == nil {
		return
	}
	h, g := a.down(c, s, x), a.back(c, s, dy)
	c.addExpertGrad(s, a.b, dy, h)
	c.addExpertGrad(s, a.a, g, x)
	free(c.List, &h, &g)
}

// addGrouped records y += a·b for the rows of each expert.
func (c *pass) addGrouped(y, a, b tensorops.Tensor, s *expertState, transB bool) {
	offsets, sources := s.rowOffsets()
	o := tensorops.GroupedOpts{TransB: transB, BF16: c.stage.opts.BF16, Accumulate: true, Sources: sources}
	if !y.Valid() || y.DType() == tensorops.Float32 {
		c.GroupedMatMul(y, a, b, offsets, o)
		return
	}
	d := c.AllocLike(y) // a sum in bfloat16 is rounded once more
	o.Accumulate = false
	c.GroupedMatMul(d, a, b, offsets, o)
	c.Add(y, y, d)
	c.Free(d)
}

// The places of a layer's matrices in expertFFN.adapters.
const (
	ofGate = iota
	ofUp
	ofDown
)

// matrices returns the experts' matrices in the order of their adapters.
func (f *expertFFN) matrices() [3]use { return [3]use{f.gate, f.up, f.down} }

// adaptExperts adds the adapters of a layer's experts that the patterns select. In transformers these are parameters, not linear layers, so
// AllLinear leaves them out.
func (m *Model) adaptExperts(match *adapterMatch, f *expertFFN) error {
	a := m.Config.Adapter
	for i, u := range f.matrices() {
		names := expertModules(u.param)
		match.see(names[0])
		if !match.targets(names, true) || !u.frozen() {
			continue
		}
		switch {
		case a.DoRA:
			return adapterError("dora", "%s is a matrix of experts, which can have none; leave dora out, or choose other targets", names[0])
		case a.Dropout > 0:
			return adapterError("dropout", "%g: adapters of experts such as %s have none; set dropout = 0, or choose other targets",
				a.Dropout,
				names[0])
		}
		rank, alpha, err := match.sizes(names)
		if err != nil {
			return err
		}
		shape := u.param.Whole // [E, out, in]
		bound := 1 / math.Sqrt(float64(shape[2]))
		f.adapters[i] = m.cutAdapter(&expertAdapter{rank: rank, alpha: alpha, scale: a.scale(rank, alpha),
			a: m.adapterParam(names[0]+AdapterA, Init{Uniform: bound}, shape[0], rank, shape[2]),
			b: m.adapterParam(names[0]+AdapterB, zeros, shape[0], shape[1], rank)}, i)
	}
	return nil
}

// expertModules returns the names under which patterns find the matrices of experts: their own, and that of the parameter of transformers
// that has them, such as gate_up_proj.
func expertModules(p *Param) []string {
	of := p.Stored.Name
	if of == "" && p.Other != nil {
		of = p.Other.Name
	}
	return []string{p.Module(), of}
}

// ExpertLayer describes the matrices of one kind of all experts of a layer, and their adapters. Transformers has them in a parameter
// that may have several kinds. The LinearLayer is that of one expert; Weight has the matrices of all.
type ExpertLayer struct {
	LinearLayer
	Experts   int
	Parameter string // of transformers, with its module
	// Outputs is the number of outputs of an expert in that parameter. Output o of this layer is First + o·Step of them.
	Outputs, First, Step int
}

// ExpertLayers lists the matrices of experts in the model's order.
func (m *Model) ExpertLayers() (list []ExpertLayer) {
	for _, f := range m.withExperts() {
		for i, u := range f.matrices() {
			shape, names := u.param.Whole, expertModules(u.param)
			one := ExpertLayer{Experts: shape[0], Parameter: names[1], Outputs: shape[1], Step: 1,
				LinearLayer: LinearLayer{Module: names[0], Weight: u.param, In: shape[2], Out: shape[1]}}
			if i != ofDown {
				one.Outputs *= 2
				one.First = i * shape[1]
				if u.param.Stored.Strides != nil { // by turns
					one.First, one.Step = i, 2
				}
			}
			if a := f.adapters[i]; a != nil {
				one.Rank, one.Alpha, one.Scale = a.rank, a.alpha, a.scale
			}
			list = append(list, one)
		}
	}
	return list
}
