package optest

import (
	"fmt"

	"github.com/troupe-ml/troupe/tensorops"
)

// Case is one line of the table: a few operations on inputs of its own.
type Case struct {
	Name string         // kind/variant; it is also the seed of the inputs
	Kind tensorops.Kind // what the case is about; it sets the tolerance

	record func(*builder)
}

// Options adapt the table to a device.
type Options struct {
	// Widen multiplies the tolerance of a kind, for a device that rounds more.
	Widen map[tensorops.Kind]float64
	// Sizes are tried as M, N and K of matrix products, beside the usual ones:
	// give those around the device's own block boundaries.
	Sizes []int
	// Skip leaves out the cases it is true for.
	Skip func(Case) bool
	// Most bounds the cases that Check tries; 0: it tries all.
	Most int
	// Oracle keeps what the oracle said, for a test that holds several devices to the same
	// table; nil: it is asked each time.
	Oracle *Oracle
}

// widens is what the tolerance of a kind is multiplied by.
func (o Options) widens(k tensorops.Kind) float64 {
	if w, ok := o.Widen[k]; ok {
		return w
	}
	return 1
}

// Cases is the table.
func Cases(opt Options) []Case {
	var all []Case
	for _, family := range [][]Case{
		linearCases(opt.Sizes), fusedCases(), embedCases(), normCases(), actCases(), gateCases(), attentionCases(), sinkCases(), deltaCases(),
		expertCases(), lossCases(),
		optimCases(), stateCases(), moveCases(),
	} {
		for _, c := range family {
			if opt.Skip == nil || !opt.Skip(c) {
				all = append(all, c)
			}
		}
	}
	return all
}

// in is the case with tensors of the types by turns.
func (c Case) in(name string, types ...tensorops.DType) Case {
	record := c.record
	c.Name += "/" + name
	c.record = func(b *builder) {
		b.types = types
		record(b)
	}
	return c
}

// eitherType repeats cases whose tensors may be of float32 or bfloat16 for the second, and
// for both by turns.
func eitherType(cases []Case) []Case {
	var all []Case
	for _, c := range cases {
		all = append(all, c, c.in("bfloat16", tensorops.BFloat16), c.in("mixed", tensorops.BFloat16, tensorops.Float32, tensorops.BFloat16))
	}
	return all
}

// run carries out the case on a stream and returns what it checks.
func (c Case) run(s tensorops.Stream) ([]*output, error) {
	b := newBuilder(s, c.Name)
	c.record(b)
	return b.run(s)
}

// compare runs the case on a stream and reports where its outputs differ from the oracle's by
// more than the tolerance.
func (c Case) compare(dev tensorops.Stream, oracle *Oracle, widen float64) error {
	_, err := c.compared(dev, oracle, widen)
	return err
}

// compared is compare, and returns the outputs.
func (c Case) compared(dev tensorops.Stream, oracle *Oracle, widen float64) ([]*output, error) {
	want, err := oracle.run(c)
	if err != nil {
		return nil, fmt.Errorf("oracle: %w", err)
	}
	got, err := c.run(dev)
	if err != nil {
		return nil, err
	}
	for i, w := range want {
		if err := w.compare(got[i], tolerances[c.Kind]*widen); err != nil {
			return nil, fmt.Errorf("%s: %w", w.name, err)
		}
	}
	return got, nil
}
