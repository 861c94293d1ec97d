package cpu

import "github.com/troupe-ml/troupe/tensorops/cpu/internal/vec"

func gelu(x *exec, lo, hi int) {
	a := x.op.GELU()
	x.dev.kernels.vec.GELU(f32(a.Y)[lo:hi], f32(a.X)[lo:hi])
}

func geluGrad(x *exec, lo, hi int) {
	a := x.op.GELUGrad()
	x.dev.kernels.vec.GELUGrad(f32(a.DX)[lo:hi], f32(a.DY)[lo:hi], f32(a.X)[lo:hi])
}

func swiGLU(x *exec, lo, hi int) {
	a := x.op.SwiGLU()
	x.dev.kernels.vec.SwiGLU(f32(a.Y)[lo:hi], f32(a.Gate)[lo:hi], f32(a.Up)[lo:hi])
}

func swiGLUGrad(x *exec, lo, hi int) {
	a := x.op.SwiGLUGrad()
	x.dev.kernels.vec.SwiGLUGrad(f32(a.DGate)[lo:hi], f32(a.DUp)[lo:hi], f32(a.DY)[lo:hi], f32(a.Gate)[lo:hi], f32(a.Up)[lo:hi])
}

// dropBlock is the number of elements whose masks are drawn at a time.
const dropBlock = 2048

func dropout(x *exec, lo, hi int) {
	a, k := x.op.Dropout(), x.dev.kernels.vec
	y, in, skip := f32(a.Y)[lo:hi], f32(a.X)[lo:hi], optional(a.Skip)
	if skip != nil {
		skip = skip[lo:hi]
	}
	if a.Mask.P == 0 {
		if skip == nil {
			copy(y, in)
		} else {
			k.Add(y, in, skip)
		}
		return
	}
	d := vec.NewDropout(a.Mask.Key, a.Mask.Step, a.Mask.P)
	for at := 0; at < len(y); at += dropBlock {
		end := min(at+dropBlock, len(y))
		part := skip
		if skip != nil {
			part = skip[at:end]
		}
		k.Drop(y[at:end], in[at:end], x.keep(d, a.Mask.First+uint64(lo+at), end-at), part, d.Scale)
	}
}

// keep draws the masks of n elements from index first on. They are overwritten
// by the next.
func (x *exec) keep(d vec.Dropout, first uint64, n int) []uint32 {
	return x.dev.kernels.vec.Keep(scratch(&x.masks, vec.KeepSize(n)), d, first, n)
}
