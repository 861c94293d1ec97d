package layertest

import (
	"cmp"
	"fmt"
	"math"

	"github.com/troupe-ml/troupe/tensorops"
)

// slopes compares the gradients of microbatch 0, which the rig has computed, with differences of
// the loss.
func (r *rig) slopes() error {
	got := r.got
	for i, a := range r.inputs[0] {
		if a.DType() != tensorops.Float32 {
			continue
		}
		if err := r.slope("of "+r.inputName(i), true, a.Shape, a.Float, got.inputGrads[0][i].Float, func() error { return nil }); err != nil {
			return err
		}
	}
	for i, p := range r.params {
		name := r.paramName(i)
		if err := r.slope(fmt.Sprintf("of parameter %d (%q)", i, p.Name), false, p.Shape, r.weights[name], got.grads[name].Float,
			r.load); err != nil {
			return err
		}
	}
	return nil
}

// The verdicts on an element.
const (
	right = iota
	wrong
	unsure // the loss is not smooth at this point
)

// element is an element whose gradient was compared.
type element struct {
	i           int
	grad, slope float64
	judgement   int
}

// slope compares the gradient of some numbers, which it varies; loaded copies them to the device.
func (r *rig) slope(what string, input bool, shape []int, numbers, grad []float32, loaded func() error) error {
	largest := 0.0
	for _, g := range grad {
		largest = max(largest, math.Abs(float64(g)))
	}
	n := min(len(numbers), r.o.Elements)
	var all []element
	count := [3]int{}
	for k := range n {
		i := k
		if n > 1 {
			i = k * (len(numbers) - 1) / (n - 1)
		}
		e, err := r.element(i, numbers, float64(grad[i]), largest, loaded)
		if err != nil {
			return fmt.Errorf("moving element %s %s: %w", place(shape, i), what, err)
		}
		all = append(all, e)
		count[e.judgement]++
	}
	if err := loaded(); err != nil { // restored
		return err
	}
	if count[unsure] > n/4 {
		r.find("gradient",
			"%s, float32%v: differences of the loss do not converge for %d of %d elements, so their gradients cannot be judged. The layer is not smooth there, or rounds too much: use other inputs in Options, or another Step", what, shape, count[unsure], n)
	} else if count[wrong] > 0 {
		worst := all[0]
		for _, e := range all {
			if e.judgement == wrong && (worst.judgement != wrong || math.Abs(e.grad-e.slope) > math.Abs(worst.grad-worst.slope)) {
				worst = e
			}
		}
		r.find("gradient", "%s, float32%v: element %s of the gradient is %.6g, but differences give %.6g; %d of %d elements are wrong. %s",
			what, shape, place(shape, worst.i), worst.grad, worst.slope, count[wrong], n, why(all, input))
	}
	return nil
}

// element varies one number and judges its gradient. If a difference and one of half its step
// disagree, as at a kink, it tries smaller steps.
func (r *rig) element(i int, numbers []float32, grad, largest float64, loaded func() error) (element, error) {
	e := element{i: i, grad: grad, judgement: unsure}
	step, tolerance, noise := exactStep, exactTolerance, 0x1p-50
	if r.calls {
		step, tolerance, noise = callStep, callTolerance, 0x1p-21
	}
	step, tolerance = cmp.Or(r.o.Step, step), cmp.Or(r.o.Tolerance, tolerance)
	was := numbers[i]
	defer func() { numbers[i] = was }()
	at := func(by float64) (float64, error) {
		numbers[i] = float32(float64(was) + by)
		if err := loaded(); err != nil {
			return 0, err
		}
		r.size = 0
		for _, what := range []byte{'F', 'B'} {
			if err := r.pass(what, 0); err != nil {
				return 0, err
			}
		}
		return r.got.losses[0], nil
	}
	for range 3 {
		var slopes [2]float64
		for k, h := range []float64{step, step / 2} {
			up, err := at(h)
			if err != nil {
				return e, err
			}
			down, err := at(-h)
			if err != nil {
				return e, err
			}
			slopes[k] = (up - down) / (2 * h)
		}
		slope := (4*slopes[1] - slopes[0]) / 3
		off, spread := math.Abs(slope-grad), math.Abs(slopes[1]-slopes[0])
		allowed := tolerance*max(math.Abs(slope), math.Abs(grad)) + tolerance/10*largest + noise*math.Sqrt(r.size+1)/step
		switch {
		case off <= allowed:
			e.slope, e.judgement = slope, right
			return e, nil
		case spread <= off/4:
			e.slope, e.judgement = slope, wrong
			if r.calls { // a smaller step is noisier
				return e, nil
			}
		}
		step /= 8
	}
	return e, nil
}

// why guesses the cause of a wrong gradient.
func why(all []element, input bool) string {
	var n, zero, extra, opposite int
	low, high := math.Inf(1), math.Inf(-1)
	for _, e := range all {
		if e.judgement != wrong {
			continue
		}
		n++
		ratio := e.grad / e.slope
		switch small := 1e-4 * max(math.Abs(e.grad), math.Abs(e.slope)); {
		case e.grad == 0:
			zero++
		case math.Abs(e.slope) <= small:
			extra++
		case math.Abs(ratio+1) < 1e-2:
			opposite++
		}
		low, high = min(low, ratio), max(high, ratio)
	}
	switch {
	case zero == n && input:
		return "It is 0 although the output depends on the input: InputGrad leaves it out"
	case zero == n:
		return "It is 0 although the output depends on the parameter: WeightGrad does not add to its Pass.Grad, or adds to that of another parameter"
	case opposite == n:
		return "The sign is wrong"
	case extra == n:
		return "The output does not depend on these elements: an index is wrong, or a term belongs elsewhere"
	case n > 1 && low > 0 && high-low < 1e-2*high:
		return fmt.Sprintf("It is %.4g times the correct value: a factor is missing or extra (the loss is a sum over samples; do not divide by their number)", low)
	case n < len(all):
		return "The other elements are correct: an index or a boundary is wrong, or a case is missing"
	}
	return "A term is missing or wrong: each path to an output adds a term, and matrices are transposed in the backward"
}
