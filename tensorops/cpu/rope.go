package cpu

import (
	"sync"

	"github.com/troupe-ml/troupe/tensorops"
)

// angleCache keeps the cosines and sines of positions, which every layer and
// microbatch shares. All its tables together have at most limitAngles angles. It
// knows a rotation by its content: a caller may make the same one for each pass.
type angleCache struct {
	mu     sync.Mutex
	tables map[angleKey]angles
	kept   int // angles of all tables
}

// angleKey is tensorops.Rotation.Key.
type angleKey = [32]byte

// angles are cosines and sines, [position][i] for i < pairs.
type angles struct{ cos, sin []float32 }

// get returns the angles of at least the given number of positions; false: they are too
// many to keep. A table that has to grow doubles, since generation asks for one position
// more with every token.
func (c *angleCache) get(r *tensorops.Rotation, positions int) (angles, bool) {
	pairs := r.Pairs()
	if positions > limitAngles/pairs {
		return angles{}, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	have := c.tables[r.Key()]
	if len(have.cos) >= positions*pairs {
		return have, true
	}
	n := max(positions*pairs, min(2*len(have.cos), limitAngles/pairs*pairs))
	table := angles{make([]float32, n), make([]float32, n)}
	known := copy(table.cos, have.cos)
	copy(table.sin, have.sin)
	angles{table.cos[known:], table.sin[known:]}.fill(r, known/pairs)
	if c.kept += n - known; c.tables == nil || c.kept > limitAngles {
		c.tables, c.kept = make(map[angleKey]angles), n
	}
	c.tables[r.Key()] = table
	return table, true
}

// fill computes the angles of the positions from first on.
func (a angles) fill(r *tensorops.Rotation, first int) {
	pairs := r.Pairs()
	for i := range pairs {
		for at, p := i, first; at < len(a.cos); at, p = at+pairs, p+1 {
			cos, sin := r.Angle(i, p)
			a.cos[at], a.sin[at] = float32(cos), float32(sin)
		}
	}
}

func ropeRows(x *exec, lo, hi int) {
	a := x.op.RoPE()
	v, c, stride, pairs := x.values(0, a.X), a.X.Cols(), a.X.Stride(), a.Rotation.Pairs()
	table, kept := x.dev.angles.get(a.Rotation, a.First+a.Period)
	starts := startsOf(a.Starts)
	var own angles // of a position that is not in the table
	for n := lo; n < hi; n++ {
		position := a.First + n%a.Period - starts.at(n)
		var row angles
		if at := position * pairs; kept && position >= 0 && at < len(table.cos) {
			row = angles{table.cos[at:][:pairs], table.sin[at:][:pairs]}
		} else {
			if own.cos == nil {
				own = angles{make([]float32, pairs), make([]float32, pairs)}
			}
			row = own
			row.fill(a.Rotation, position)
		}
		turned := x.get(v, n*stride, n*stride+c)
		if a.Interleaved {
			row.turn(turned, a.Heads, a.Inverse)
		} else {
			x.dev.kernels.vec.RoPE(turned, row.cos, row.sin, a.Heads, a.Inverse)
		}
		x.put(v, n*stride, turned)
	}
}

// turn rotates the pairs (2i, 2i + 1) of each head. A product is rounded before it is added, as the vector loops of the other pairs do.
func (a angles) turn(x []float32, heads int, inverse bool) {
	d := len(x) / heads
	for h := range heads {
		head := x[h*d:][:d]
		for i, cos := range a.cos {
			sin := a.sin[i]
			if inverse {
				sin = -sin
			}
			left, right := head[2*i], head[2*i+1]
			head[2*i], head[2*i+1] = float32(left*cos)-float32(right*sin), float32(right*cos)+float32(left*sin)
		}
	}
}
