package tensorops

// RoPEOpts are the sizes of a rotary embedding.
type RoPEOpts struct {
	Heads   int     // the columns are Heads × D
	Period  int     // T: row n is at position First + n mod Period
	First   int     // position of a sequence's first row
	Theta   float64 // base of the wavelengths
	Inverse bool    // rotate back: the gradient
}

// RoPE records the rotary position embedding (Su et al. 2021) in place: in each
// head the pair (i, i + D/2) turns by position·Theta^(−2i/D). x may be a view of
// columns.
func (l *List) RoPE(x Tensor, r RoPEOpts) {
	o := l.op(KindRoPE)
	RoPEArgs{x, r}.Put(o)
	l.need(o, either(x) && r.Heads > 0 && x.Cols()%(2*r.Heads) == 0 && r.Period > 0 && x.Rows()%r.Period == 0 && r.First >= 0 && r.Theta > 0,
		"the columns are heads of even width, the rows whole periods (sizes: heads, period, first position; number: theta)")
}

// RoPEArgs are the operands of KindRoPE.
type RoPEArgs struct {
	X Tensor
	RoPEOpts
}

// Put stores the operands.
func (a RoPEArgs) Put(o *Op) {
	o.operands(a.X)
	o.I[0], o.I[1], o.I[2], o.F[0] = a.Heads, a.Period, a.First, a.Theta
	o.set(FlagInverse, a.Inverse)
}

// RoPE reads the operands.
func (o *Op) RoPE() RoPEArgs {
	return RoPEArgs{X: o.T[0], RoPEOpts: RoPEOpts{Heads: o.I[0], Period: o.I[1], First: o.I[2], Theta: o.F[0], Inverse: o.Has(FlagInverse)}}
}
