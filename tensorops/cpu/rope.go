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
	tables map[angleKey][]float32
}

type angleKey struct {
	theta float64
	half  int
}

// get returns cos and sin interleaved, [position][i] for i < half, for at least
// the given number of positions.
func (c *angleCache) get(theta float64, half, positions int) []float32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := angleKey{theta, half}
	have := c.tables[key]
	if len(have) >= positions*half*2 {
		return have
	}
	table := make([]float32, 0, positions*half*2)
	for p := range positions {
		for i := range half {
			s, cos := math.Sincos(float64(p) * math.Pow(theta, -float64(i)/float64(half)))
			table = append(table, float32(cos), float32(s))
		}
	}
	if c.tables == nil {
		c.tables = make(map[angleKey][]float32)
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
	v, d := f32(t), t.Cols()/heads
	half := d / 2
	table := x.dev.angles.get(op.F[0], half, first+period)
	sign := float32(1)
	if op.Has(tensorops.FlagInverse) {
		sign = -1
	}
	for n := lo; n < hi; n++ {
		angles := table[(first+n%period)*half*2:][:half*2]
		for h := range heads {
			a := v[n*t.Stride()+h*d:][:d]
			for i := range half {
				cos, sin := angles[2*i], sign*angles[2*i+1]
				p, q := a[i], a[i+half]
				a[i], a[i+half] = p*cos-q*sin, q*cos+p*sin
			}
		}
	}
}
