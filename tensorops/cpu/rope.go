package cpu

import (
	"math"
	"sync"

	"github.com/troupe-ml/troupe/tensorops"
)

// angleCache keeps the cosines and sines of positions, which every layer and
// microbatch shares. All its tables together have at most LimitAngles angles.
type angleCache struct {
	mu     sync.Mutex
	tables map[angleKey]angles
	kept   int // angles of all tables
}

type angleKey struct {
	theta float64
	half  int
}

// angles are cosines and sines, [position][i] for i < half.
type angles struct{ cos, sin []float32 }

// get returns the angles of at least the given number of positions; false: they are too
// many to keep. A table that has to grow doubles, since generation asks for one position
// more with every token.
func (c *angleCache) get(theta float64, half, positions int) (angles, bool) {
	if positions > LimitAngles/half {
		return angles{}, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	key := angleKey{theta, half}
	have := c.tables[key]
	if len(have.cos) >= positions*half {
		return have, true
	}
	n := max(positions*half, min(2*len(have.cos), LimitAngles/half*half))
	table := angles{make([]float32, n), make([]float32, n)}
	known := copy(table.cos, have.cos)
	copy(table.sin, have.sin)
	angles{table.cos[known:], table.sin[known:]}.fill(theta, half, known/half)
	if c.kept += n - known; c.tables == nil || c.kept > LimitAngles {
		c.tables, c.kept = make(map[angleKey]angles), n
	}
	c.tables[key] = table
	return table, true
}

// fill computes the angles of the positions from first on.
func (a angles) fill(theta float64, half, first int) {
	for i := range half {
		step := math.Pow(theta, -float64(i)/float64(half))
		for at, p := i, first; at < len(a.cos); at, p = at+half, p+1 {
			sin, cos := math.Sincos(float64(p) * step)
			a.cos[at], a.sin[at] = float32(cos), float32(sin)
		}
	}
}

func (x *exec) rope() error {
	t := x.op.T[0]
	return x.parallel(t.Rows(), rowGrain(t.Cols()), ropeRows)
}

func ropeRows(x *exec, lo, hi int) {
	op := x.op
	t, heads, period, first := op.T[0], op.I[0], op.I[1], op.I[2]
	v, c, half := f32(t), t.Cols(), t.Cols()/heads/2
	table, kept := x.dev.angles.get(op.F[0], half, first+period)
	var row angles
	if !kept {
		row = angles{make([]float32, half), make([]float32, half)}
	}
	for n := lo; n < hi; n++ {
		position := first + n%period
		if kept {
			at := position * half
			row = angles{table.cos[at:][:half], table.sin[at:][:half]}
		} else {
			row.fill(op.F[0], half, position)
		}
		x.dev.kernels.vec.RoPE(v[n*t.Stride():][:c], row.cos, row.sin, heads, op.Has(tensorops.FlagInverse))
	}
}
