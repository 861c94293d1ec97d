package tensorops

import "math"

// RoPEOpts holds the sizes of a rotary position embedding.
type RoPEOpts struct {
	Heads   int     // the columns are Heads × D
	Period  int     // T: row n is at position First + n mod Period
	First   int     // position of a sequence's first row
	Theta   float64 // base of the wavelengths
	Scaling RoPEScaling
	Inverse bool // rotate back: the gradient
}

// RoPEScaling lengthens wavelengths, so that a model supports more positions than it was first
// trained with; with Factor 0 it does nothing.
type RoPEScaling struct {
	Factor float64 // factor by which all, or the long, wavelengths grow
	// If Original is not 0 (Llama 3.1): wavelengths above Original/Low positions grow by Factor,
	// those below Original/High do not change, and between them the frequency is interpolated.
	Low, High float64
	Original  int
}

// legal reports whether the numbers are valid.
func (s RoPEScaling) legal() bool {
	return s == RoPEScaling{} || s.Factor > 0 && (s.Original == 0 || s.Original > 0 && s.Low > 0 && s.High > s.Low)
}

// Frequency returns the angle by which a pair rotates from one position to the next: Theta^(−2i/D)
// for pair i of D/2, scaled.
func (r RoPEOpts) Frequency(i, half int) float64 {
	f, s := math.Pow(r.Theta, -float64(i)/float64(half)), r.Scaling
	if s.Factor == 0 {
		return f
	}
	if s.Original == 0 {
		return f / s.Factor
	}
	turns := float64(s.Original) * f / (2 * math.Pi) // rotations within Original positions
	keep := min(max((turns-s.Low)/(s.High-s.Low), 0), 1)
	return (1-keep)*f/s.Factor + float64(keep*f) // not fused with the addition, as the compiler would on arm64
}

// RoPE records the rotary position embedding (Su et al. 2021) in place: in each head the pair (i, i
// + D/2) rotates by position·Theta^(−2i/D), or less with Scaling. x may be a view of columns.
func (l *List) RoPE(x Tensor, r RoPEOpts) {
	o := l.op(KindRoPE)
	RoPEArgs{x, r}.Put(o)
	l.need(o, either(x) && r.Heads > 0 && x.Cols()%(2*r.Heads) == 0 && r.Period > 0 && x.Rows()%r.Period == 0 && r.First >= 0 &&
		r.First <= math.MaxInt32-r.Period+1 && r.Theta > 0 && r.Scaling.legal(),
		"the columns are heads of even width, the rows whole periods, of positions below 2³¹ (sizes: heads, period, first position, original positions; numbers: theta, factor, low, high)")
}

// RoPEArgs are the operands of KindRoPE.
type RoPEArgs struct {
	X Tensor
	RoPEOpts
}

// Put stores the operands.
func (a RoPEArgs) Put(o *Op) {
	o.operands(a.X)
	o.I[0], o.I[1], o.I[2], o.I[3] = a.Heads, a.Period, a.First, a.Scaling.Original
	o.F[0], o.F[1], o.F[2], o.F[3] = a.Theta, a.Scaling.Factor, a.Scaling.Low, a.Scaling.High
	o.set(FlagInverse, a.Inverse)
}

// RoPE reads the operands.
func (o *Op) RoPE() RoPEArgs {
	return RoPEArgs{X: o.T[0], RoPEOpts: RoPEOpts{Heads: o.I[0], Period: o.I[1], First: o.I[2], Theta: o.F[0],
		Scaling: RoPEScaling{Factor: o.F[1], Low: o.F[2], High: o.F[3], Original: o.I[3]}, Inverse: o.Has(FlagInverse)}}
}
