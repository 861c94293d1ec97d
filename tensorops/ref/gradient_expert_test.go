package ref_test

import (
	"errors"
	"testing"

	"github.com/troupe-ml/troupe/tensorops"
)

// TestExpertBiasGradient: the gradients of the biases of experts, and of the weights by which their rows are combined, are the slopes. The
// second of three experts has no rows.
func TestExpertBiasGradient(t *testing.T) {
	p := newTape(t)
	const n, k, in, out = 3, 2, 4, 5
	offsets, places, experts := p.ids(0, 4, 4, 6), p.ids(1, 4, 0, 5, 2, 3).View(n, k), p.ids(0, 2, 0, 2, 0, 0).View(n, k)
	x, w, rows, y := p.normal(n*k, in), p.normal(3, out, in), p.normal(n*k, out), p.normal(n, out)
	bias, weights := p.normal(3, out), p.normal(n, k)
	opts := tensorops.GroupedOpts{TransB: true}
	checkGradient(p, function{
		tensors(bias, weights), tensors(y),
		func(l *tensorops.List) {
			biased := opts
			biased.Bias = bias
			l.GroupedMatMul(rows, x, w, offsets, biased)
			l.Combine(y, rows, places, weights)
		},
		func(l *tensorops.List, dout, din []tensorops.Tensor) {
			drows, plain := l.Alloc(tensorops.Float32, n*k, out), l.Alloc(tensorops.Float32, n*k, out)
			l.Dispatch(drows, dout[0], places)
			l.GroupedColSum(din[0], drows, offsets, weights, places)
			l.GroupedMatMul(plain, x, w, offsets, opts)
			l.WeighRows(plain, drows, din[1], weights, places)
			l.WeighBias(din[1], dout[0], bias, experts)
			l.Free(drows)
			l.Free(plain)
		},
	})
}

// TestExpertBiasRefuses: rows and experts that do not exist are errors.
func TestExpertBiasRefuses(t *testing.T) {
	p := newTape(t)
	sum, x, weights, places := p.zeros(tensorops.Float32, 2, 3), p.normal(2, 3), p.normal(2, 1), p.ids(0, 2).View(2, 1)
	for name, record := range map[string]func(l *tensorops.List){
		"a row that does not exist":     func(l *tensorops.List) { l.GroupedColSum(sum, x, p.ids(0, 1, 2), weights, places) },
		"offsets that descend":          func(l *tensorops.List) { l.GroupedColSum(sum, x, p.ids(0, 3, 2), none, none) },
		"an expert that does not exist": func(l *tensorops.List) { l.WeighBias(weights, x, sum, places) },
	} {
		l := p.stream.NewList()
		record(l)
		if err := tensorops.Run(p.stream, l); !errors.Is(err, tensorops.ErrRoute) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
