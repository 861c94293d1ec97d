package cpu

import "github.com/troupe-ml/troupe/tensorops"

func (x *exec) fill() error {
	a := x.op.Fill()
	switch a.T.DType() {
	case tensorops.Float64:
		fillAll(f64(a.T), a.Value)
	case tensorops.Int32:
		fillAll(i32(a.T), int32(a.Value))
	case tensorops.Uint8:
		fillAll(tensorops.Elements[uint8](a.T), uint8(a.Value))
	default:
		return x.parallel(a.T.Len(), 4*lightGrain, fillRange)
	}
	return nil
}

func fillRange(x *exec, lo, hi int) { fillFloats(x.op.Fill(), lo, hi) }

// fillFloats fills elements of float32 or bfloat16.
func fillFloats(a tensorops.FillArgs, lo, hi int) {
	if a.T.DType() == tensorops.BFloat16 {
		fillAll(tensorops.Elements[uint16](a.T)[lo:hi], tensorops.ToBFloat16(float32(a.Value)))
		return
	}
	fillAll(f32(a.T)[lo:hi], float32(a.Value))
}

func fillAll[E tensorops.Number](s []E, v E) {
	for i := range s {
		s[i] = v
	}
}

func copyRows(x *exec, lo, hi int) {
	a := x.op.Copy()
	dst, src := a.Dst, a.Src
	switch dst.DType() {
	case tensorops.Float64:
		copyRange(f64(dst), f64(src), dst, src, lo, hi)
	case tensorops.Int32:
		copyRange(i32(dst), i32(src), dst, src, lo, hi)
	case tensorops.Uint8:
		copyRange(tensorops.Elements[uint8](dst), tensorops.Elements[uint8](src), dst, src, lo, hi)
	default:
		to, from := x.values(0, dst), x.values(1, src)
		for n := lo; n < hi; n++ {
			x.convert(to, n*dst.Stride(), from, n*src.Stride(), dst.Cols())
		}
	}
}

func copyRange[E any](d, s []E, dst, src tensorops.Tensor, lo, hi int) {
	c := dst.Cols()
	for n := lo; n < hi; n++ {
		copy(d[n*dst.Stride():][:c], s[n*src.Stride():])
	}
}
