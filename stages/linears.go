package stages

// LinearLayer describes a linear layer of a language model, and its adapter.
type LinearLayer struct {
	Module string // as adapters name it
	Weight *Param // of a head that is tied to the embedding, that of the embedding
	Head   bool
	In     int  // columns of A
	Out    int  // rows of B
	InOut  bool // the weight has shape [In, Out], otherwise [Out, In]
	// Of the adapter. Rank is 0 without one.
	Rank         int
	Alpha, Scale float64 // Scale is s of W·x + s·B·A·x
}

// Linears lists the linear layers in the model's order.
func (m *Model) Linears() (list []LinearLayer) {
	for _, l := range m.layers {
		_, isHead := l.(*head)
		for _, lin := range l.linears() {
			one := LinearLayer{Module: lin.w.param.Module(), Weight: lin.w.param, Head: isHead, InOut: lin.inOut}
			if isHead {
				one.Module = headModule
			}
			one.Out, one.In = lin.w.param.Whole[0], lin.w.param.Whole[1]
			if lin.inOut {
				one.In, one.Out = one.Out, one.In
			}
			if a := lin.adapter; a != nil {
				one.Rank, one.Alpha, one.Scale = a.rank, a.alpha, a.scale
			}
			list = append(list, one)
		}
	}
	return list
}
