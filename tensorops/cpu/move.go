package cpu

import "github.com/troupe-ml/troupe/tensorops"

func (x *exec) fill() error {
	switch t := x.op.T[0]; t.DType() {
	case tensorops.Float64:
		fillAll(f64(t), x.op.F[0])
	case tensorops.Int32:
		fillAll(i32(t), int32(x.op.F[0]))
	default:
		return x.parallel(t.Len(), 4*lightGrain, fillRange)
	}
	return nil
}

func fillRange(x *exec, lo, hi int) {
	fillAll(f32(x.op.T[0])[lo:hi], float32(x.op.F[0]))
}

func fillAll[E float32 | float64 | int32](s []E, v E) {
	for i := range s {
		s[i] = v
	}
}

func copyRows(x *exec, lo, hi int) {
	dst, src := x.op.T[0], x.op.T[1]
	switch dst.DType() {
	case tensorops.Float64:
		copyRange(f64(dst), f64(src), dst, src, lo, hi)
	case tensorops.Int32:
		copyRange(i32(dst), i32(src), dst, src, lo, hi)
	default:
		copyRange(f32(dst), f32(src), dst, src, lo, hi)
	}
}

func copyRange[E any](d, s []E, dst, src tensorops.Tensor, lo, hi int) {
	c := dst.Cols()
	for n := lo; n < hi; n++ {
		copy(d[n*dst.Stride():][:c], s[n*src.Stride():])
	}
}
