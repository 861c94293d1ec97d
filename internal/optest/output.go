package optest

import (
	"fmt"
	"math"

	"github.com/troupe-ml/troupe/tensorops"
)

// output is a tensor that a case checks, as fetched.
type output struct {
	name    string
	dtype   tensorops.DType
	shape   []int
	host    []byte
	factor  float64 // on the tolerance
	atLeast float64 // the scale of errors where the values themselves are small
}

// loosen multiplies the tolerance of this output, for a reason that the case
// states.
func (o *output) loosen(factor float64) *output {
	o.factor *= factor
	return o
}

// scaled measures errors against at least this magnitude: what was added up,
// where it cancels in the result.
func (o *output) scaled(magnitude float64) *output {
	o.atLeast = magnitude
	return o
}

// summed says that an element is the sum of n terms of order 1 and random signs.
// It grows with √n, and relative to it so does the rounding of a float32 sum
// that adds one term after the other.
func (o *output) summed(n int) *output {
	root := math.Sqrt(float64(n))
	return o.scaled(max(1, root)).loosen(max(1, root/2))
}

// values are the elements in float64.
func (o *output) values() []float64 {
	switch o.dtype {
	case tensorops.Float64:
		return tensorops.HostNumbers[float64](o.host)
	case tensorops.Int32:
		return widened(tensorops.HostNumbers[int32](o.host))
	case tensorops.Uint8:
		return widened(o.host)
	case tensorops.BFloat16:
		bits := tensorops.HostNumbers[uint16](o.host)
		values := make([]float64, len(bits))
		for i, b := range bits {
			values[i] = float64(tensorops.FromBFloat16(b))
		}
		return values
	default:
		return widened(tensorops.HostNumbers[float32](o.host))
	}
}

// rounding is how far apart two numbers may be that were close before they were rounded to
// the output's type: of bfloat16 one ulp, and else nothing.
func (o *output) rounding(v float64) float64 {
	if o.dtype != tensorops.BFloat16 || !finite(v) {
		return 0
	}
	return math.Abs(v) / (1 << 7)
}

func widened[E float32 | int32 | uint8](numbers []E) []float64 {
	values := make([]float64, len(numbers))
	for i, n := range numbers {
		values[i] = float64(n)
	}
	return values
}

// compare reports the element of got that is worst, when it is further from the
// oracle's than tolerance allows.
func (o *output) compare(got *output, tolerance float64) error {
	want, have := o.values(), got.values()
	scale := o.atLeast
	for _, v := range want {
		if finite(v) {
			scale = max(scale, math.Abs(v))
		}
	}
	allowed := tolerance * ulp * o.factor * scale
	if within(have, want, allowed) {
		return nil
	}
	worst, at, wrong := 0.0, 0, 0
	for i, w := range want {
		e := max(0, distance(have[i], w)-o.rounding(w))
		if e > allowed {
			wrong++
		}
		if e > worst {
			worst, at = e, i
		}
	}
	if wrong == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d elements of %v%v are wrong; the worst, element %d, is %.9g and the oracle says %.9g: an error of %.3g, with values up to %.3g %.3g is allowed",
		wrong, len(want), o.dtype, o.shape, at, have[at], want[at], worst, scale, allowed)
}

// within reports whether all numbers are finite and no two further apart than is allowed: so it is of most outputs, which need
// no closer look.
func within(have, want []float64, allowed float64) bool {
	for i, w := range want {
		if !(math.Abs(have[i]-w) <= allowed) {
			return false
		}
	}
	return true
}

// distance is |a − b|, which is 0 between equal infinities or two NaN and
// infinite between anything else that is not finite.
func distance(a, b float64) float64 {
	switch {
	case a == b || math.IsNaN(a) && math.IsNaN(b):
		return 0
	case !finite(a) || !finite(b):
		return math.Inf(1)
	}
	return math.Abs(a - b)
}

// finite is false of infinities and of NaN, which differ from themselves or from zero by no number.
func finite(v float64) bool { return v-v == 0 }
