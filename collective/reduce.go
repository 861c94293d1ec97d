package collective

import (
	"sync"

	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu"
)

// scratch is the work space of one reduction at a time.
type scratch struct {
	sum  [8 * blockLen]byte // a block of the widest type
	wide [blockLen]float32  // of bfloat16: an operand
	from [][]byte           // the operands of a run
	past bool               // the result goes past the caches, where there is a loop for it
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// reduce makes dst the reduction of the members' src, in their order: bytes of numbers of one type.
// dst may be one of src. past: it is too large to be found in a cache when it is read.
func (s *scratch) reduce(d tensorops.DType, how tensorops.Reduction, dst []byte, src [][]byte, past bool) {
	s.past = past
	switch d {
	case tensorops.Float32:
		reduceRun(s, how, tensorops.HostNumbers[float32](dst), src)
	case tensorops.Float64:
		reduceRun(s, how, tensorops.HostNumbers[float64](dst), src)
	case tensorops.Int32:
		reduceRun(s, how, tensorops.HostNumbers[int32](dst), src)
	case tensorops.BFloat16:
		s.reduceHalf(how, tensorops.HostNumbers[uint16](dst), src)
	}
}

type number interface{ float32 | float64 | int32 }

func reduceRun[E number](s *scratch, how tensorops.Reduction, dst []E, src [][]byte) {
	sum := tensorops.HostNumbers[E](s.sum[:])
	for lo := 0; lo < len(dst); lo += blockLen {
		hi := min(lo+blockLen, len(dst))
		out := dst[lo:hi]
		part := func(i int) []E { return tensorops.HostNumbers[E](src[i])[lo:hi] }
		// Only the last step writes to out, which may be any of the operands.
		acc := part(0)
		for i := 1; i < len(src); i++ {
			to := sum[:hi-lo]
			if i == len(src)-1 {
				if to = out; s.past && how == tensorops.Sum && addPast(to, acc, part(i)) {
					break
				}
			}
			combine(how, to, acc, part(i))
			acc = to
		}
		if len(src) == 1 {
			copy(out, acc)
		}
		if how == tensorops.Mean {
			n := E(len(src))
			for i := range out {
				out[i] /= n
			}
		}
	}
}

// reduceHalf is reduceRun for bfloat16.
func (s *scratch) reduceHalf(how tensorops.Reduction, dst []uint16, src [][]byte) {
	sum := tensorops.HostNumbers[float32](s.sum[:])
	for lo := 0; lo < len(dst); lo += blockLen {
		hi := min(lo+blockLen, len(dst))
		acc := sum[:hi-lo]
		cpu.Widen(acc, tensorops.HostNumbers[uint16](src[0])[lo:hi])
		for i := 1; i < len(src); i++ {
			x := s.wide[:hi-lo]
			cpu.Widen(x, tensorops.HostNumbers[uint16](src[i])[lo:hi])
			combine(how, acc, acc, x)
		}
		if how == tensorops.Mean {
			n := float32(len(src))
			for i := range acc {
				acc[i] /= n
			}
		}
		cpu.Round(dst[lo:hi], acc)
	}
}

// addPast makes dst the sums of a and b past the caches; false: there is no loop for the type.
func addPast[E number](dst, a, b []E) bool {
	to, ok := any(dst).([]float32)
	if ok {
		cpu.AddPast(to, any(a).([]float32), any(b).([]float32))
	}
	return ok
}

// combine makes dst a and b reduced, one by one. dst may be a or b. The largest and the smallest of a
// NaN and a number is NaN.
func combine[E number](how tensorops.Reduction, dst, a, b []E) {
	a, b = a[:len(dst)], b[:len(dst)]
	switch how {
	case tensorops.Max:
		for i := range dst {
			dst[i] = max(a[i], b[i])
		}
	case tensorops.Min:
		for i := range dst {
			dst[i] = min(a[i], b[i])
		}
	case tensorops.Product:
		for i := range dst {
			dst[i] = a[i] * b[i]
		}
	default:
		if dst, ok := any(dst).([]float32); ok {
			cpu.Add(dst, any(a).([]float32), any(b).([]float32))
			return
		}
		for i := range dst {
			dst[i] = a[i] + b[i]
		}
	}
}
