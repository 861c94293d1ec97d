package tensorops

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"slices"
)

// Rotation is the table of a rotary position embedding: the angle by which each pair of channels
// rotates from one position to the next. It does not change once it is made, so operations may
// share it.
type Rotation struct {
	frequencies []float64
	scale       float64
	key         [sha256.Size]byte
	legal       bool
}

// NewRotation makes a table. frequencies has the angle of each pair in radians, where 0 leaves the
// pair in place; scale multiplies all cosines and sines, and is 1 usually.
func NewRotation(frequencies []float64, scale float64) *Rotation {
	r := &Rotation{frequencies: slices.Clone(frequencies), scale: scale, legal: len(frequencies) > 0 && finite(scale)}
	content := binary.LittleEndian.AppendUint64(make([]byte, 0, 8*len(frequencies)+8), math.Float64bits(scale))
	for _, f := range frequencies {
		r.legal = r.legal && finite(f)
		content = binary.LittleEndian.AppendUint64(content, math.Float64bits(f))
	}
	r.key = sha256.Sum256(content)
	return r
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// Pairs returns the number of pairs that rotate.
func (r *Rotation) Pairs() int { return len(r.frequencies) }

// Frequency returns the angle of a pair, in radians from one position to the next.
func (r *Rotation) Frequency(pair int) float64 { return r.frequencies[pair] }

// Scale returns the factor of all cosines and sines.
func (r *Rotation) Scale() float64 { return r.scale }

// Key identifies the content: two tables with the same angles and scale have the same key.
func (r *Rotation) Key() [sha256.Size]byte { return r.key }

// Angle returns the cosine and the sine of a pair at a position, with the scale.
func (r *Rotation) Angle(pair, position int) (cos, sin float64) {
	sin, cos = math.Sincos(float64(position) * r.frequencies[pair])
	return cos * r.scale, sin * r.scale
}

// RoPEOpts holds the sizes of a rotary position embedding.
type RoPEOpts struct {
	Heads  int // the columns are Heads × D
	Period int // T: row n is at position First + n mod Period
	First  int // position of a sequence's first row
	// Starts, an int32 for each row of x, is where the row's document starts: row n has position
	// First + n mod Period − Starts[n], which may be below 0. Invalid: all start at 0.
	Starts   Tensor
	Rotation *Rotation
	Inverse  bool // rotate back, with the same scale: the gradient
	// Interleaved says that the pairs are (2i, 2i + 1), not (i, i + n).
	Interleaved bool
}

// RoPE records the rotary position embedding (Su et al. 2021) in place. A rotation of n pairs
// rotates the pairs (i, i + n), or (2i, 2i + 1), of each head's first 2n channels by position·Frequency(i), times its
// scale; the other channels stay. x may be a view of columns.
func (l *List) RoPE(x Tensor, r RoPEOpts) {
	o := l.op(KindRoPE)
	RoPEArgs{x, r}.Put(o)
	l.need(o, either(x) && r.Heads > 0 && x.Cols()%r.Heads == 0 && r.Rotation != nil && r.Rotation.legal &&
		2*r.Rotation.Pairs() <= x.Cols()/r.Heads && r.Period > 0 && x.Rows()%r.Period == 0 && r.First >= 0 &&
		r.First <= math.MaxInt32-r.Period+1 &&
		startsFit(r.Starts, x),
		"the columns are heads of at least two channels for each pair of a finite rotation, "+
			"the rows whole periods, of positions below 2³¹ (sizes: heads, period, first position), starts none or an int32 for each row")
}

// RoPEArgs are the operands of KindRoPE.
type RoPEArgs struct {
	X Tensor
	RoPEOpts
}

// Put stores the operands.
func (a RoPEArgs) Put(o *Op) {
	o.operands(a.X, a.Starts)
	o.I[0], o.I[1], o.I[2], o.I[3] = a.Heads, a.Period, a.First, truth(a.Interleaved)
	o.Rotation = a.Rotation
	o.set(FlagInverse, a.Inverse)
}

// RoPE reads the operands.
func (o *Op) RoPE() RoPEArgs {
	return RoPEArgs{X: o.T[0], RoPEOpts: RoPEOpts{Heads: o.I[0], Period: o.I[1], First: o.I[2], Starts: o.T[1], Rotation: o.Rotation,
		Inverse: o.Has(FlagInverse), Interleaved: o.I[3] != 0}}
}
