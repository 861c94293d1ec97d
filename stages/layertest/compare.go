package layertest

import (
	"fmt"
	"math"
	"slices"

	"github.com/troupe-ml/troupe/tensorops"
)

// at returns element i of an array, as a number and as its bits.
func at(a tensorops.Array, i int) (float64, uint64) {
	switch a.DType() {
	case tensorops.Int32:
		return float64(a.Int[i]), uint64(uint32(a.Int[i]))
	case tensorops.Float64:
		return a.Double[i], math.Float64bits(a.Double[i])
	}
	return float64(a.Float[i]), uint64(math.Float32bits(a.Float[i]))
}

// place returns the indices of element i in a shape, such as "[1 2]".
func place(shape []int, i int) string {
	indices := make([]int, len(shape))
	for d := len(shape) - 1; d >= 0; d-- {
		indices[d], i = i%shape[d], i/shape[d]
	}
	return fmt.Sprint(indices)
}

// describe returns an array's type and shape.
func describe(a tensorops.Array) string { return fmt.Sprintf("%v%v", a.DType(), a.Shape) }

// firstDifference describes the first difference between two arrays; "" if they are bit-identical.
func firstDifference(is, other tensorops.Array, what string) string {
	if is.DType() != other.DType() || !slices.Equal(is.Shape, other.Shape) {
		return fmt.Sprintf("it is %s, %s %s", describe(is), what, describe(other))
	}
	first, n := -1, 0
	for i := range is.Len() {
		_, a := at(is, i)
		if _, b := at(other, i); a != b {
			n++
			if first < 0 {
				first = i
			}
		}
	}
	if first < 0 {
		return ""
	}
	a, _ := at(is, first)
	b, _ := at(other, first)
	return fmt.Sprintf("element %s is %.9g, %s %.9g; %d of %d elements differ", place(is.Shape, first), a, what, b, n, is.Len())
}

// compare reports the first difference between the outcomes of two runs of some microbatches; the
// others follow from it.
func (r *rig) compare(check string, want outcome, cause string) {
	const was = "otherwise"
	for mb := range microbatches {
		for i, a := range r.got.outputs[mb] {
			if d := firstDifference(a, want.outputs[mb][i], was); d != "" {
				r.find(check, "output %d of microbatch %d: %s. %s", i, mb, d, cause)
				return
			}
		}
		if a, b := r.got.losses[mb], want.losses[mb]; math.Float64bits(a) != math.Float64bits(b) {
			r.find(check, "the loss of microbatch %d is %.17g, %s %.17g. %s", mb, a, was, b, cause)
			return
		}
		for i, a := range r.got.inputGrads[mb] {
			if d := firstDifference(a, want.inputGrads[mb][i], was); d != "" {
				r.find(check, "gradient of %s in microbatch %d: %s. %s", r.inputName(i), mb, d, cause)
				return
			}
		}
	}
	for i, p := range r.params {
		if d := firstDifference(r.got.grads[r.paramName(i)], want.grads[r.paramName(i)], was); d != "" {
			r.find(check, "gradient of parameter %q: %s. %s", p.Name, d, cause)
			return
		}
	}
}
