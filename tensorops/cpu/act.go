package cpu

import "github.com/troupe-ml/troupe/internal/rng"

// GELU's tanh form is x·σ(2z) with z = √(2/π)(x + 0.044715x³), because
// (1 + tanh z)/2 = σ(2z).
const (
	geluA = 2 * 0.7978845608028654 // 2·√(2/π)
	geluB = 0.044715
)

// expBlock is the number of exponentials that are computed at a time.
const expBlock = 256

func gelu(x *exec, lo, hi int) {
	y, in := f32(x.op.T[0])[lo:hi], f32(x.op.T[1])[lo:hi]
	var e [expBlock]float32
	for len(in) > 0 {
		n := min(expBlock, len(in))
		for i, v := range in[:n] {
			e[i] = -geluA * (v + geluB*v*v*v)
		}
		x.dev.kernels.exp(e[:n], e[:n])
		for i, v := range in[:n] {
			y[i] = v / (1 + e[i])
		}
		y, in = y[n:], in[n:]
	}
}

func geluGrad(x *exec, lo, hi int) {
	dx, dy, in := f32(x.op.T[0])[lo:hi], f32(x.op.T[1])[lo:hi], f32(x.op.T[2])[lo:hi]
	var e [expBlock]float32
	for len(in) > 0 {
		n := min(expBlock, len(in))
		for i, v := range in[:n] {
			e[i] = -geluA * (v + geluB*v*v*v)
		}
		x.dev.kernels.exp(e[:n], e[:n])
		for i, v := range in[:n] {
			s := 1 / (1 + e[i])
			dx[i] = dy[i] * (s + v*s*(1-s)*geluA*(1+3*geluB*v*v))
		}
		dx, dy, in = dx[n:], dy[n:], in[n:]
	}
}

func swiGLU(x *exec, lo, hi int) {
	y, gate, up := f32(x.op.T[0])[lo:hi], f32(x.op.T[1])[lo:hi], f32(x.op.T[2])[lo:hi]
	var e [expBlock]float32
	for len(gate) > 0 {
		n := min(expBlock, len(gate))
		for i, g := range gate[:n] {
			e[i] = -g
		}
		x.dev.kernels.exp(e[:n], e[:n])
		for i, g := range gate[:n] {
			y[i] = g / (1 + e[i]) * up[i]
		}
		y, gate, up = y[n:], gate[n:], up[n:]
	}
}

func swiGLUGrad(x *exec, lo, hi int) {
	dgate, dup := f32(x.op.T[0])[lo:hi], f32(x.op.T[1])[lo:hi]
	dy, gate, up := f32(x.op.T[2])[lo:hi], f32(x.op.T[3])[lo:hi], f32(x.op.T[4])[lo:hi]
	var e [expBlock]float32
	for len(gate) > 0 {
		n := min(expBlock, len(gate))
		for i, g := range gate[:n] {
			e[i] = -g
		}
		x.dev.kernels.exp(e[:n], e[:n])
		for i, g := range gate[:n] {
			s, d := 1/(1+e[i]), dy[i]
			dgate[i] = d * up[i] * s * (1 + g*(1-s))
			dup[i] = d * g * s
		}
		dgate, dup, dy, gate, up = dgate[n:], dup[n:], dy[n:], gate[n:], up[n:]
	}
}

// keeper draws the mask of a dropout: element i of the global batch is kept when
// its word, lane i mod 4 of the Philox block (step, i div 4), is at least P·2³².
type keeper struct {
	key       rng.Key
	step      uint64
	threshold uint32
	block     uint64 // the block in words, +1; 0: none
	words     [4]uint32
}

func newKeeper(key rng.Key, u [2]uint64, p float64) keeper {
	return keeper{key: key, step: u[0], threshold: uint32(p * (1 << 32))}
}

func (k *keeper) keep(i uint64) bool {
	if b := i/4 + 1; b != k.block {
		k.block = b
		k.words[0], k.words[1], k.words[2], k.words[3] = rng.Block(k.key, k.step, b-1)
	}
	return k.words[i%4] >= k.threshold
}

func dropout(x *exec, lo, hi int) {
	op := x.op
	y, in := f32(op.T[0])[lo:hi], f32(op.T[1])[lo:hi]
	var skip []float32
	if op.T[2].Valid() {
		skip = f32(op.T[2])[lo:hi]
	}
	if op.F[0] == 0 {
		for i, v := range in {
			if skip != nil {
				v = skip[i] + v
			}
			y[i] = v
		}
		return
	}
	k := newKeeper(op.Key, op.U, op.F[0])
	scale := float32(1 / (1 - op.F[0]))
	first := op.U[1] + uint64(lo)
	for i, v := range in {
		if k.keep(first + uint64(i)) {
			v *= scale
		} else {
			v = 0
		}
		if skip != nil {
			v = skip[i] + v
		}
		y[i] = v
	}
}
