package cpu

import (
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/vec"
)

// span is a part of an operation that works on elements: rows of n elements, each so many behind the one
// before it.
type span struct{ first, n, rows, apart int }

// each calls f for the elements of a span, as parts does for those of a range.
func (s span) each(f func(lo, hi int), all ...values) {
	for r := range s.rows {
		lo := s.first + r*s.apart
		parts(lo, lo+s.n, f, all...)
	}
}

func gelu(x *exec, lo, hi int) { x.gelu(x.op.GELU(), span{first: lo, n: hi - lo, rows: 1}) }

func (x *exec) gelu(a tensorops.GELUArgs, s span) {
	y, in := x.values(0, a.Y), x.values(1, a.X)
	s.each(func(lo, hi int) {
		out := x.room(y, lo, hi)
		x.dev.kernels.vec.GELU(out, x.get(in, lo, hi))
		x.put(y, lo, out)
	}, y, in)
}

func geluGrad(x *exec, lo, hi int) {
	x.geluGrad(x.op.GELUGrad(), span{first: lo, n: hi - lo, rows: 1})
}

func (x *exec) geluGrad(a tensorops.GELUGradArgs, s span) {
	dx, dy, in := x.values(0, a.DX), x.values(1, a.DY), x.values(2, a.X)
	s.each(func(lo, hi int) {
		out := x.room(dx, lo, hi)
		x.dev.kernels.vec.GELUGrad(out, x.get(dy, lo, hi), x.get(in, lo, hi))
		x.put(dx, lo, out)
	}, dx, dy, in)
}

func swiGLU(x *exec, lo, hi int) {
	a := x.op.SwiGLU()
	y, gate, up := x.values(0, a.Y), x.values(1, a.Gate), x.values(2, a.Up)
	parts(lo, hi, func(lo, hi int) {
		out := x.room(y, lo, hi)
		x.dev.kernels.vec.SwiGLU(out, x.get(gate, lo, hi), x.get(up, lo, hi))
		x.put(y, lo, out)
	}, y, gate, up)
}

func swiGLUGrad(x *exec, lo, hi int) {
	a := x.op.SwiGLUGrad()
	dgate, dup, dy := x.values(0, a.DGate), x.values(1, a.DUp), x.values(2, a.DY)
	gate, up := x.values(3, a.Gate), x.values(4, a.Up)
	parts(lo, hi, func(lo, hi int) {
		outGate, outUp := x.room(dgate, lo, hi), x.room(dup, lo, hi)
		x.dev.kernels.vec.SwiGLUGrad(outGate, outUp, x.get(dy, lo, hi), x.get(gate, lo, hi), x.get(up, lo, hi))
		x.put(dgate, lo, outGate)
		x.put(dup, lo, outUp)
	}, dgate, dup, dy, gate, up)
}

// dropBlock is the number of elements whose masks are drawn at a time.
const dropBlock = 2048

func dropout(x *exec, lo, hi int) {
	a, k := x.op.Dropout(), x.dev.kernels.vec
	y, in, skip := x.values(0, a.Y), x.values(1, a.X), x.values(2, a.Skip)
	if a.Mask.P == 0 {
		parts(lo, hi, func(lo, hi int) {
			out := x.room(y, lo, hi)
			if a.Skip.Valid() {
				k.Add(out, x.get(in, lo, hi), x.get(skip, lo, hi))
			} else {
				copy(out, x.get(in, lo, hi))
			}
			x.put(y, lo, out)
		}, y, in, skip)
		return
	}
	d := vec.NewDropout(a.Mask.Key, a.Mask.Step, a.Mask.P)
	for at := lo; at < hi; at += dropBlock {
		end := min(at+dropBlock, hi)
		out := x.room(y, at, end)
		k.Drop(out, x.get(in, at, end), x.keep(d, a.Mask.First+uint64(at), end-at), x.get(skip, at, end), d.Scale)
		x.put(y, at, out)
	}
}

// keep draws the masks of n elements from index first on. They are overwritten
// by the next.
func (x *exec) keep(d vec.Dropout, first uint64, n int) []uint32 {
	return x.dev.kernels.vec.Keep(scratch(&x.masks, vec.KeepSize(n)), d, first, n)
}
