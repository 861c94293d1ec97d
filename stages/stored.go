package stages

// Stored says which elements of a larger tensor of a checkpoint are a parameter, such as the rows of q in a fused projection. The
// zero value: the parameter has a tensor of its own, with its name.
type Stored struct {
	Name string
	Row  int // first row
	Rows int // of the whole tensor
	// If Strides is set, the elements are spread over a tensor of this Shape instead: that with the index i, j, … is the tensor's element
	// At + i·Strides[0] + j·Strides[1] + …
	Shape, Strides []int
	At             int
}

// StoredName returns the name of the tensor of a checkpoint that has the parameter.
func (p *Param) StoredName() string {
	if p.Stored.Name != "" {
		return p.Stored.Name
	}
	return p.Name
}

// StoredShape returns the shape of that tensor.
func (p *Param) StoredShape() []int {
	switch {
	case p.Stored.Name == "":
		return p.Whole
	case p.Stored.Strides != nil:
		return p.Stored.Shape
	}
	return append([]int{p.Stored.Rows}, p.Whole[1:]...)
}

// StoredAt returns the index in that tensor of the parameter's first element.
func (p *Param) StoredAt() int {
	switch {
	case p.Stored.Name == "":
		return 0
	case p.Stored.Strides != nil:
		return p.Stored.At
	}
	return p.Stored.Row * elements(p.Whole[1:])
}

// StoredPart is a tensor of a checkpoint with all elements of a parameter, or some of them.
type StoredPart struct {
	Name  string
	Shape []int
	At    int // index in the tensor of the first of these elements
	// The elements of the whole parameter: Len from First on.
	First, Len int
	// Dims and Strides are set if the elements are spread over the tensor: the parameter's shape, and see Stored.
	Dims, Strides []int
	// MXFP4 says that the numbers are in two tensors, of codes and of scales: see MXFP4Tensors.
	MXFP4 bool
}

// StoredParts returns the tensors of a checkpoint that have the parameter, in the order of its elements.
func (p *Param) StoredParts() (parts []StoredPart) {
	if len(p.Parts) == 0 {
		part := StoredPart{Name: p.StoredName(), Shape: p.StoredShape(), At: p.StoredAt(), Len: elements(p.Whole)}
		if p.Stored.Strides != nil {
			part.Dims, part.Strides = p.Whole, p.Stored.Strides
		}
		return []StoredPart{part}
	}
	n := elements(p.Whole) / len(p.Parts)
	for i, name := range p.Parts {
		parts = append(parts, StoredPart{Name: name, Shape: p.Whole[1:], First: i * n, Len: n})
	}
	return parts
}

// FirstStored reports whether the parameter is the first one in its tensor of a checkpoint.
func (p *Param) FirstStored() bool { return p.StoredAt() == 0 }

// Fused reports whether checkpoints of the model have tensors with several parameters, or in another order, or parameters in several
// tensors.
func (m *Model) Fused() bool {
	for _, p := range m.Params {
		if p.Stored.Name != "" || len(p.Parts) > 0 {
			return true
		}
	}
	return false
}

// storedIn says that the checkpoint has linear layers in one tensor, one after the other, if it
// does. Their parameters follow one another in the model's order.
func (m *Model) storedIn(name string, fused bool, ms []linear) {
	if !fused {
		return
	}
	var rows [2]int
	each := func(f func(p *Param, kind int, end string)) {
		for i := range ms {
			f(ms[i].w.param, 0, ".weight")
			if ms[i].hasBias {
				f(ms[i].b.param, 1, ".bias")
			}
		}
	}
	each(func(p *Param, kind int, end string) {
		p.Stored = Stored{Name: name + end, Row: rows[kind]}
		rows[kind] += p.Whole[0]
	})
	each(func(p *Param, kind int, _ string) { p.Stored.Rows = rows[kind] })
}
