package cpu

import "github.com/troupe-ml/troupe/tensorops/cpu/internal/vec"

func gelu(x *exec, lo, hi int) {
	x.dev.kernels.vec.GELU(f32(x.op.T[0])[lo:hi], f32(x.op.T[1])[lo:hi])
}

func geluGrad(x *exec, lo, hi int) {
	x.dev.kernels.vec.GELUGrad(f32(x.op.T[0])[lo:hi], f32(x.op.T[1])[lo:hi], f32(x.op.T[2])[lo:hi])
}

func swiGLU(x *exec, lo, hi int) {
	x.dev.kernels.vec.SwiGLU(f32(x.op.T[0])[lo:hi], f32(x.op.T[1])[lo:hi], f32(x.op.T[2])[lo:hi])
}

func swiGLUGrad(x *exec, lo, hi int) {
	t := x.op.T
	x.dev.kernels.vec.SwiGLUGrad(f32(t[0])[lo:hi], f32(t[1])[lo:hi], f32(t[2])[lo:hi], f32(t[3])[lo:hi], f32(t[4])[lo:hi])
}

// dropBlock is the number of elements whose masks are drawn at a time.
const dropBlock = 2048

func dropout(x *exec, lo, hi int) {
	op, k := x.op, x.dev.kernels.vec
	y, in := f32(op.T[0])[lo:hi], f32(op.T[1])[lo:hi]
	var skip []float32
	if op.T[2].Valid() {
		skip = f32(op.T[2])[lo:hi]
	}
	if op.F[0] == 0 {
		if skip == nil {
			copy(y, in)
		} else {
			k.Add(y, in, skip)
		}
		return
	}
	d := vec.NewDropout(op.Key, op.U[0], op.F[0])
	for at := 0; at < len(y); at += dropBlock {
		end := min(at+dropBlock, len(y))
		part := skip
		if skip != nil {
			part = skip[at:end]
		}
		k.Drop(y[at:end], in[at:end], x.keep(d, op.U[1]+uint64(lo+at), end-at), part, d.Scale)
	}
}

// keep draws the masks of n elements from index first on. They are overwritten
// by the next.
func (x *exec) keep(d vec.Dropout, first uint64, n int) []uint32 {
	return x.dev.kernels.vec.Keep(scratch(&x.masks, vec.KeepSize(n)), d, first, n)
}
