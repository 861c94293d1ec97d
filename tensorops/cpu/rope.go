package cpu

import (
	"math"
	"sync"

	"github.com/troupe-ml/troupe/tensorops"
)

// angleCache keeps the cosines and sines of positions, which every layer and
// microbatch shares.
type angleCache struct {
	mu     sync.Mutex
	tables map[angleKey]angles
}

type angleKey struct {
	theta float64
	half  int
}

// angles are cosines and sines, [position][i] for i < half.
type angles struct{ cos, sin []float32 }

// get returns the angles of at least the given number of positions.
func (c *angleCache) get(theta float64, half, positions int) angles {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := angleKey{theta, half}
	if have := c.tables[key]; len(have.cos) >= positions*half {
		return have
	}
	table := angles{make([]float32, positions*half), make([]float32, positions*half)}
	for i := range half {
		step := math.Pow(theta, -float64(i)/float64(half))
		for p := range positions {
			sin, cos := math.Sincos(float64(p) * step)
			table.cos[p*half+i], table.sin[p*half+i] = float32(cos), float32(sin)
		}
	}
	if c.tables == nil {
		c.tables = make(map[angleKey]angles)
	}
	c.tables[key] = table
	return table
}

func (x *exec) rope() error {
	t := x.op.T[0]
	return x.parallel(t.Rows(), rowGrain(t.Cols()), ropeRows)
}

func ropeRows(x *exec, lo, hi int) {
	op := x.op
	t, heads, period, first := op.T[0], op.I[0], op.I[1], op.I[2]
	v, c, half := f32(t), t.Cols(), t.Cols()/heads/2
	table := x.dev.angles.get(op.F[0], half, first+period)
	for n := lo; n < hi; n++ {
		at := (first + n%period) * half
		x.dev.kernels.vec.RoPE(v[n*t.Stride():][:c], table.cos[at:][:half], table.sin[at:][:half], heads, op.Has(tensorops.FlagInverse))
	}
}
