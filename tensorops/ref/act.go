package ref

import (
	"math"

	"github.com/troupe-ml/troupe/internal/base/rng"
	"github.com/troupe-ml/troupe/tensorops"
)

// geluInner is u = √(2/π)(x + 0.044715x³), the argument of GELU's tanh.
func geluInner(x float64) float64 { return math.Sqrt(2/math.Pi) * (x + 0.044715*x*x*x) }

// geluInnerSlope is du/dx.
func geluInnerSlope(x float64) float64 { return math.Sqrt(2/math.Pi) * (1 + 3*0.044715*x*x) }

// gelu: y = x/2·(1 + tanh u).
func gelu(op *tensorops.Op) {
	a := op.GELU()
	y, x := Values(a.Y), Values(a.X)
	for i, v := range x {
		y[i] = v / 2 * (1 + math.Tanh(geluInner(v)))
	}
}

// geluGrad: dx = dy·((1 + tanh u)/2 + x/2·(1 − tanh² u)·du/dx).
func geluGrad(op *tensorops.Op) {
	a := op.GELUGrad()
	dx, dy, x := Values(a.DX), Values(a.DY), Values(a.X)
	for i, v := range x {
		t := math.Tanh(geluInner(v))
		dx[i] = dy[i] * ((1+t)/2 + v/2*(1-t*t)*geluInnerSlope(v))
	}
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// swiGLU: y = gate·σ(gate)·up.
func swiGLU(op *tensorops.Op) {
	a := op.SwiGLU()
	y, gate, up := Values(a.Y), Values(a.Gate), Values(a.Up)
	for i, g := range gate {
		y[i] = g * sigmoid(g) * up[i]
	}
}

// swiGLUGrad: dgate = dy·up·σ·(1 + gate·(1 − σ)), dup = dy·gate·σ.
func swiGLUGrad(op *tensorops.Op) {
	a := op.SwiGLUGrad()
	dgate, dup, dy := Values(a.DGate), Values(a.DUp), Values(a.DY)
	gate, up := Values(a.Gate), Values(a.Up)
	for i, g := range gate {
		s, d := sigmoid(g), dy[i]
		dgate[i] = d * up[i] * s * (1 + g*(1-s))
		dup[i] = d * g * s
	}
}

// mask is a dropout's: element i is kept when its word, lane i mod 4 of the
// random block (step, i div 4), is at least ⌊P·2³²⌋.
type mask tensorops.Mask

// factor is what the tensor's element i is multiplied by: 1/(1−P), or 0 when it
// is dropped.
func (m mask) factor(i int) float64 {
	if m.P == 0 {
		return 1
	}
	if m.word(i) < uint32(m.P*(1<<32)) {
		return 0
	}
	return 1 / (1 - m.P)
}

// word is the tensor's element i's random word.
func (m mask) word(i int) uint32 {
	index := m.First + uint64(i)
	var words [4]uint32
	words[0], words[1], words[2], words[3] = rng.Block(m.Key, m.Step, index/4)
	return words[index%4]
}

// dropout: y = x·mask/(1−P) + skip. A dropped element is 0 even where x is not a
// number.
func dropout(op *tensorops.Op) {
	a := op.Dropout()
	y, x, drawn := Values(a.Y), Values(a.X), mask(a.Mask)
	for i, v := range x {
		kept := 0.0
		if f := drawn.factor(i); f != 0 {
			kept = v * f
		}
		y[i] = kept + skipped(a.Skip, i)
	}
}

// jitter: y = x·(1 + P·(2u − 1)) + skip.
func jitter(op *tensorops.Op) {
	a := op.Dropout()
	y, x, drawn := Values(a.Y), Values(a.X), mask(a.Mask)
	for i, v := range x {
		y[i] = v*(1+drawn.P*(2*rng.Uniform(drawn.word(i))-1)) + skipped(a.Skip, i)
	}
}
