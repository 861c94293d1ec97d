package cpu

import "github.com/troupe-ml/troupe/tensorops"

// values are those of a tensor that may be of either type: float32, on which the loops work, or
// bfloat16. Of the latter an operation widens a part that fits the first-level cache, works
// on that, and rounds its result back: the way to memory and back is what most of these
// operations take, and it is half as long.
type values struct {
	f    []float32 // one of the two is there; neither, if the tensor is none
	h    []uint16
	slot int // of the widened part
}

// Slots of an operation's operands: as many as one has.
const operandSlots = 6

// partLen is the number of elements in a part, where an operation works on elements.
const partLen = 2048

// values views a tensor of either type, or none. Each operand of an operation has a slot of
// its own.
func (x *exec) values(slot int, t tensorops.Tensor) values {
	switch {
	case !t.Valid():
		return values{slot: slot}
	case t.DType() == tensorops.BFloat16:
		return values{h: tensorops.Elements[uint16](t), slot: slot}
	}
	return values{f: f32(t), slot: slot}
}

// half reports whether the tensor is bfloat16.
func (o values) half() bool { return o.h != nil }

// get is what the elements [lo, hi) hold: their memory, or a widened copy that lasts until
// the next get or room of the slot. It is nil if there is no tensor.
func (x *exec) get(o values, lo, hi int) []float32 {
	if !o.half() {
		if o.f == nil {
			return nil
		}
		return o.f[lo:hi]
	}
	s := scratch(&x.wide[o.slot], hi-lo)
	x.dev.kernels.vec.FromBF16(s, o.h[lo:hi])
	return s
}

// room is where the elements [lo, hi) are to be written; put follows.
func (x *exec) room(o values, lo, hi int) []float32 {
	if !o.half() {
		return o.f[lo:hi]
	}
	return scratch(&x.wide[o.slot], hi-lo)
}

// put rounds what was written into the room of the elements from lo on.
func (x *exec) put(o values, lo int, s []float32) {
	if o.half() {
		x.dev.kernels.vec.ToBF16(o.h[lo:lo+len(s)], s)
	}
}

// parts calls f for the elements [lo, hi): at once, or in parts if one of the operands is
// bfloat16.
func parts(lo, hi int, f func(lo, hi int), all ...values) {
	for _, o := range all {
		if !o.half() {
			continue
		}
		for ; lo < hi; lo += partLen {
			f(lo, min(lo+partLen, hi))
		}
		return
	}
	f(lo, hi)
}

// convert stores n elements of src from one place on at another of dst, widened or rounded
// where the types differ.
func (x *exec) convert(dst values, to int, src values, from, n int) {
	switch k := x.dev.kernels.vec; {
	case dst.half() && src.half():
		copy(dst.h[to:to+n], src.h[from:from+n])
	case dst.half():
		k.ToBF16(dst.h[to:to+n], src.f[from:from+n])
	case src.half():
		k.FromBF16(dst.f[to:to+n], src.h[from:from+n])
	default:
		copy(dst.f[to:to+n], src.f[from:from+n])
	}
}
