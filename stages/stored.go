package stages

// Stored says which rows of a larger tensor of a checkpoint are a parameter, such as those of q in a
// fused projection. The zero value: the parameter has a tensor of its own, with its name.
type Stored struct {
	Name string
	Row  int // first row
	Rows int // of the whole tensor
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
	if p.Stored.Name == "" {
		return p.Whole
	}
	return append([]int{p.Stored.Rows}, p.Whole[1:]...)
}

// StoredAt returns the index in that tensor of the parameter's first element.
func (p *Param) StoredAt() int {
	if p.Stored.Name == "" {
		return 0
	}
	return p.Stored.Row * elements(p.Whole[1:])
}

// Fused reports whether checkpoints of the model have tensors with several parameters.
func (m *Model) Fused() bool {
	for _, p := range m.Params {
		if p.Stored.Name != "" {
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
