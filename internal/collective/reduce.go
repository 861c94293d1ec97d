package collective

import (
	"sync"

	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu"
)

// scratch is the work space of one reduction at a time.
type scratch struct {
	sum    [8 * blockLen]byte // a block of the widest type
	wide   [blockLen]float32  // of bfloat16: an operand
	from   [][]byte           // the operands of a run
	singly [cpu.MostOperands][]float32
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// reduce makes dst the reduction of the members' src, in their order: bytes of numbers of one type.
// dst may be one of src. past: it is too large to be found in a cache when it is read, and goes past them where there is a loop for it.
func (s *scratch) reduce(d tensorops.DType, how tensorops.Reduction, dst []byte, src [][]byte, past bool) {
	switch d {
	case tensorops.Float32:
		out := tensorops.HostNumbers[float32](dst)
		switch how {
		case tensorops.Sum:
			s.add(out, src, past)
		case tensorops.Mean:
			s.add(out, src, false) // it is read again
			average(out, len(src))
		default:
			reduceRun(s, how, out, src)
		}
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
				to = out
			}
			combine(how, to, acc, part(i))
			acc = to
		}
		if len(src) == 1 {
			copy(out, acc)
		}
		if how == tensorops.Mean {
			average(out, len(src))
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
			average(acc, len(src))
		}
		cpu.Round(dst[lo:hi], acc)
	}
}

// average makes sums means.
func average[E number](sums []E, by int) {
	n := E(by)
	for i := range sums {
		sums[i] /= n
	}
}

// add makes dst the sums of src, in their order: as many at once as there is a loop for, since memory that lies in several
// places is read faster along all of them than first along one and then along the next.
func (s *scratch) add(dst []float32, src [][]byte, past bool) {
	if len(src) == 1 {
		copy(dst, tensorops.HostNumbers[float32](src[0]))
		return
	}
	step := len(dst)
	if len(src) > len(s.singly) {
		step = blockLen // what has been added so far stays in the first-level cache
	}
	sum := tensorops.HostNumbers[float32](s.sum[:])
	for lo := 0; lo < len(dst); lo += step {
		hi := min(lo+step, len(dst))
		part := func(i int) []float32 { return tensorops.HostNumbers[float32](src[i])[lo:hi] }
		s.singly[0] = part(0)
		for next := 1; next < len(src); {
			n := 1
			for ; n < len(s.singly) && next < len(src); n, next = n+1, next+1 {
				s.singly[n] = part(next)
			}
			if next == len(src) { // only the last step writes to dst, which may be any of the operands
				cpu.Sum(dst[lo:hi], past, s.singly[:n]...)
				break
			}
			cpu.Sum(sum[:hi-lo], false, s.singly[:n]...)
			s.singly[0] = sum[:hi-lo]
		}
	}
	clear(s.singly[:])
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
			cpu.Sum(dst, false, any(a).([]float32), any(b).([]float32))
			return
		}
		for i := range dst {
			dst[i] = a[i] + b[i]
		}
	}
}
