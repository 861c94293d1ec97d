package cpu

import (
	"math"
	"sync"

	"github.com/troupe-ml/troupe/tensorops"
)

// angleCache keeps the cosines and sines of positions, which every layer and
// microbatch shares. All its tables together have at most limitAngles angles.
type angleCache struct {
	mu     sync.Mutex
	tables map[angleKey]angles
	kept   int // angles of all tables
}

type angleKey struct {
	theta   float64
	scaling tensorops.RoPEScaling
	half    int
}

// step is by what angle pair i turns from a position to the next.
func (k angleKey) step(i int) float64 {
	return tensorops.RoPEOpts{Theta: k.theta, Scaling: k.scaling}.Frequency(i, k.half)
}

// angles are cosines and sines, [position][i] for i < half.
type angles struct{ cos, sin []float32 }

// get returns the angles of at least the given number of positions; false: they are too
// many to keep. A table that has to grow doubles, since generation asks for one position
// more with every token.
func (c *angleCache) get(key angleKey, positions int) (angles, bool) {
	half := key.half
	if positions > limitAngles/half {
		return angles{}, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	have := c.tables[key]
	if len(have.cos) >= positions*half {
		return have, true
	}
	n := max(positions*half, min(2*len(have.cos), limitAngles/half*half))
	table := angles{make([]float32, n), make([]float32, n)}
	known := copy(table.cos, have.cos)
	copy(table.sin, have.sin)
	angles{table.cos[known:], table.sin[known:]}.fill(key, known/half)
	if c.kept += n - known; c.tables == nil || c.kept > limitAngles {
		c.tables, c.kept = make(map[angleKey]angles), n
	}
	c.tables[key] = table
	return table, true
}

// fill computes the angles of the positions from first on.
func (a angles) fill(key angleKey, first int) {
	for i := range key.half {
		step := key.step(i)
		for at, p := i, first; at < len(a.cos); at, p = at+key.half, p+1 {
			sin, cos := math.Sincos(float64(p) * step)
			a.cos[at], a.sin[at] = float32(cos), float32(sin)
		}
	}
}

func ropeRows(x *exec, lo, hi int) {
	a := x.op.RoPE()
	v, c, stride, half := x.values(0, a.X), a.X.Cols(), a.X.Stride(), a.X.Cols()/a.Heads/2
	key := angleKey{a.Theta, a.Scaling, half}
	table, kept := x.dev.angles.get(key, a.First+a.Period)
	var row angles
	if !kept {
		row = angles{make([]float32, half), make([]float32, half)}
	}
	for n := lo; n < hi; n++ {
		position := a.First + n%a.Period
		if kept {
			at := position * half
			row = angles{table.cos[at:][:half], table.sin[at:][:half]}
		} else {
			row.fill(key, position)
		}
		turned := x.get(v, n*stride, n*stride+c)
		x.dev.kernels.vec.RoPE(turned, row.cos, row.sin, a.Heads, a.Inverse)
		x.put(v, n*stride, turned)
	}
}
