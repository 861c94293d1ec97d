package stages

import "github.com/troupe-ml/troupe/tensorops"

// adapter is the low-rank part of a linear layer: s·B·(A·dropout(x)).
type adapter struct {
	a, b  use
	rank  int
	alpha float64
	scale float64 // of alpha and rank
	drop  site
	in    int // columns of the whole layer's input
	from  int // first of them that this rank has
	// ofHead: the layer computes some rows at a time. residual: its rows are those of the residual stream.
	ofHead, residual bool
	dora             *dora // nil: none
}

// adapted is what an adapter keeps of a microbatch from one pass to the next. Each tensor has a column for each of the adapter's
// ranks.
type adapted struct {
	h tensorops.Tensor // s·A·dropout(x)
	g tensorops.Tensor // gradient of A·dropout(x)
	// With DoRA, the factors of the outputs.
	dora doraScale
}

func (s *adapted) free(l *tensorops.List) {
	free(l, &s.h, &s.g)
	s.dora.free(l)
}

func (a *adapter) uses() []use {
	if a.dora != nil {
		return []use{a.a, a.b, a.dora.magnitude}
	}
	return []use{a.a, a.b}
}

// keeps reports whether a pass keeps tensors for the next one. Otherwise that computes them again.
func (a *adapter) keeps(c *pass) bool {
	return c.flight != nil && c.mb.Train && !c.mb.Recompute && (!a.ofHead || !c.mb.headLater())
}

// keep keeps tensors, or frees them.
func (a *adapter) keep(c *pass, s adapted) {
	if !a.keeps(c) {
		s.free(c.List)
		return
	}
	if c.flight.adapted == nil {
		c.flight.adapted = make(map[*adapter]adapted)
	}
	c.flight.adapted[a] = s
}

// kept takes what was kept.
func (a *adapter) kept(c *pass) (s adapted) {
	if c.flight != nil {
		s = c.flight.adapted[a]
		delete(c.flight.adapted, a)
	}
	return s
}

// product returns the options of the adapter's products.
func (a *adapter) product(c *pass) tensorops.MatMulOpts {
	return tensorops.MatMulOpts{BF16: c.stage.opts.BF16}
}

// forward adds the adapter's part to y.
func (a *adapter) forward(c *pass, y, x tensorops.Tensor) {
	old := a.kept(c)
	old.free(c.List) // of the rows before
	s := adapted{h: a.down(c, x)}
	o := a.product(c)
	o.TransB = true
	c.addProduct(y, s.h, c.factor(a.b), o)
	a.keep(c, s)
}

// down returns s·A·dropout(x).
func (a *adapter) down(c *pass, x tensorops.Tensor) tensorops.Tensor {
	if !x.Valid() { // after an error
		return tensorops.Tensor{}
	}
	h := c.Alloc(c.inner(), x.Rows(), a.rank)
	in, owned := a.dropped(c, x)
	o := a.product(c)
	o.TransB = true
	c.MatMul(h, in, c.factor(a.a), o)
	c.Free(owned)
	c.scaled(h, a.scale)
	return h
}

// back returns the gradient of A·dropout(x).
func (a *adapter) back(c *pass, dy tensorops.Tensor) tensorops.Tensor {
	if !dy.Valid() {
		return tensorops.Tensor{}
	}
	g := c.Alloc(c.inner(), dy.Rows(), a.rank)
	c.MatMul(g, a.outputs(dy), c.factor(a.b), a.product(c))
	c.scaled(g, a.scale)
	return g
}

// outputs returns the columns of a tensor that are outputs of the layer, without those of padding.
func (a *adapter) outputs(t tensorops.Tensor) tensorops.Tensor {
	if out := a.b.param.Shape[0]; t.Cols() > out {
		return t.Columns(0, out)
	}
	return t
}

// inputGrad adds the adapter's part to dx.
func (a *adapter) inputGrad(c *pass, dx, dy tensorops.Tensor) {
	s := a.kept(c)
	s.g = a.back(c, dy)
	w := c.factor(a.a)
	if !c.drops(a.drop) || !dx.Valid() {
		c.addProduct(dx, s.g, w, a.product(c))
	} else {
		d := c.Alloc(dx.DType(), dx.Rows(), dx.Cols())
		c.MatMul(d, s.g, w, a.product(c))
		in, owned := a.dropped(c, d)
		sum := in
		if in.Cols() != dx.Cols() || !in.Contiguous() {
			c.Copy(d, in)
			sum = d
		}
		c.Add(dx, dx, sum)
		free(c.List, &d, &owned)
	}
	a.keep(c, s)
}

// weightGrad adds to the gradients of A and B.
func (a *adapter) weightGrad(c *pass, x, dy tensorops.Tensor) {
	s := a.kept(c)
	if !s.h.Valid() {
		s.h = a.down(c, x)
	}
	if !s.g.Valid() {
		s.g = a.back(c, dy)
	}
	o := a.product(c)
	o.TransA, o.Accumulate = true, true
	in, owned := a.dropped(c, x)
	c.MatMul(c.grad(a.a), s.g, in, o)
	c.Free(owned)
	if dy.Valid() {
		c.MatMul(c.grad(a.b), a.outputs(dy), s.h, o)
	}
	s.free(c.List)
}

// dropped returns the input of A, or the gradient of the layer's input: some elements dropped, the same in each pass. owned is its
// memory; invalid: it is x itself. An element's random bits are those of its sequence, position and column.
func (a *adapter) dropped(c *pass, x tensorops.Tensor) (t, owned tensorops.Tensor) {
	if !c.drops(a.drop) || !x.Valid() {
		return x, owned
	}
	rows, width := x.Rows(), x.Cols()
	t = c.Alloc(x.DType(), rows, a.in)
	if owned = t; !t.Valid() {
		return t, owned
	}
	from := x.Matrix()
	if width != a.in { // the bits of a row are those of the whole layer
		c.Fill(t, 0)
		c.Copy(t.Columns(a.from, a.from+width), from)
		from = t
	}
	runs, positions := c.runs(), c.mb.Positions
	if a.residual {
		runs, positions = c.residualRuns(), c.positions()
	}
	places := c.places()
	mask := c.mask(a.drop, places*a.in)
	drop := func(lo, hi, place int) { // rows [lo, hi) of t, which start at a place of the microbatch's first sequence
		part := mask
		part.First += uint64(place) * uint64(a.in)
		c.Dropout(t.RowRange(lo, hi), from.RowRange(lo, hi), tensorops.Tensor{}, part)
	}
	first := c.firstRow
	switch {
	case len(runs) == 1 && runs[0].first == 0 && positions == places:
		drop(0, rows, first)
	default:
		for b := range (first+rows)/max(positions, 1) + 1 {
			for _, r := range runs {
				lo, hi := max(b*positions+r.lo, first), min(b*positions+r.hi, first+rows)
				if lo < hi {
					drop(lo-first, hi-first, b*places+r.first+lo-b*positions-r.lo)
				}
			}
		}
	}
	if width != a.in {
		t = t.Columns(a.from, a.from+width)
	}
	return t, owned
}

// addProduct records y += a·b.
func (c *pass) addProduct(y, a, b tensorops.Tensor, o tensorops.MatMulOpts) {
	switch n := b.Cols(); {
	case !y.Valid() || !b.Valid():
	case y.DType() == tensorops.Float32:
		if o.TransB {
			n = b.Rows()
		}
		to := y
		if n < y.Cols() { // without the columns of padding
			to = y.Columns(0, n)
		}
		o.Accumulate = true
		c.MatMul(to, a, b, o)
	default: // a sum in bfloat16 is rounded once more
		if o.TransB {
			n = b.Rows()
		}
		d := c.Alloc(y.DType(), y.Rows(), y.Cols())
		to := d
		if n < y.Cols() {
			c.Fill(d, 0)
			to = d.Columns(0, n)
		}
		c.MatMul(to, a, b, o)
		c.Add(y, y, d)
		c.Free(d)
	}
}

// scaled records t·factor.
func (c *pass) scaled(t tensorops.Tensor, factor float64) {
	if factor != 1 {
		c.AddScaled(t, t, tensorops.Tensor{}, factor)
	}
}
