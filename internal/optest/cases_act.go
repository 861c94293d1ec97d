package optest

import (
	"fmt"

	"github.com/troupe-ml/troupe/internal/base/rng"
	"github.com/troupe-ml/troupe/tensorops"
)

func actCases() []Case {
	cases := []Case{
		{"gelu/shapes", tensorops.KindGELU, func(b *builder) {
			for _, s := range shapes {
				y := b.garbage(s[0], s[1])
				b.GELU(y, b.spread(0, 2, s[0], s[1]))
				b.check(y, "y of %v", s).scaled(1)
			}
		}},
		{"gelu/tiny and large", tensorops.KindGELU, func(b *builder) {
			for _, deviation := range []float64{1e-6, 1e-2, 30, 1e4} {
				y := b.garbage(1000)
				b.GELU(y, b.spread(0, deviation, 1000))
				b.check(y, "y for a deviation of %g", deviation)
			}
		}},
		{"gelu_grad/shapes", tensorops.KindGELUGrad, func(b *builder) {
			for _, s := range shapes {
				dx := b.garbage(s[0], s[1])
				b.GELUGrad(dx, b.normal(s[0], s[1]), b.spread(0, 2, s[0], s[1]))
				b.check(dx, "dx of %v", s).scaled(1)
			}
		}},
		{"gelu_grad/tiny and large", tensorops.KindGELUGrad, func(b *builder) {
			for _, deviation := range []float64{1e-6, 1e-2, 30, 1e4} {
				dx := b.garbage(1000)
				b.GELUGrad(dx, b.normal(1000), b.spread(0, deviation, 1000))
				b.check(dx, "dx for a deviation of %g", deviation)
			}
		}},
		{"gelu_grad/in place", tensorops.KindGELUGrad, func(b *builder) {
			dy := b.normal(37, 515)
			b.GELUGrad(dy, dy, b.normal(37, 515))
			b.check(dy, "dx = dy")
		}},
		// The activation is made again right behind, as a weight's gradient needs it: a device may do both at once.
		{"gelu_grad/and again", tensorops.KindGELUGrad, func(b *builder) {
			for _, s := range shapes {
				dy, x, y := b.normal(s[0], s[1]), b.spread(0, 6, s[0], s[1]), b.garbage(s[0], s[1])
				b.GELUGrad(dy, dy, x)
				b.GELU(y, x)
				b.check(dy, "dx of %v", s).scaled(1)
				b.check(y, "y of %v", s).scaled(1)
				b.GELUGrad(dy, dy, x)
				b.GELU(x, x)
				b.check(x, "y = x of %v", s).scaled(1)
			}
		}},
		{"swiglu_grad/and again", tensorops.KindSwiGLUGrad, func(b *builder) {
			for _, s := range shapes {
				dgate, dy, gate, up := b.garbage(s[0], s[1]), b.normal(s[0], s[1]), b.spread(0, 6, s[0], s[1]), b.normal(s[0], s[1])
				b.SwiGLUGrad(dgate, dy, dy, gate, up)
				b.SwiGLU(gate, gate, up)
				b.check(dgate, "dgate of %v", s).scaled(6)
				b.check(dy, "dup of %v", s).scaled(6)
				b.check(gate, "y = gate of %v", s).scaled(6)
			}
		}},
		{"swiglu/shapes", tensorops.KindSwiGLU, func(b *builder) {
			for _, s := range shapes {
				y := b.garbage(s[0], s[1])
				b.SwiGLU(y, b.spread(0, 2, s[0], s[1]), b.normal(s[0], s[1]))
				b.check(y, "y of %v", s).scaled(1)
			}
		}},
		{"swiglu/large", tensorops.KindSwiGLU, func(b *builder) {
			y := b.garbage(1000)
			b.SwiGLU(y, b.spread(0, 100, 1000), b.normal(1000))
			b.check(y, "y")
		}},
		{"swiglu_grad/shapes", tensorops.KindSwiGLUGrad, func(b *builder) {
			for _, s := range shapes {
				dgate, dup := b.garbage(s[0], s[1]), b.garbage(s[0], s[1])
				b.SwiGLUGrad(dgate, dup, b.normal(s[0], s[1]), b.spread(0, 2, s[0], s[1]), b.normal(s[0], s[1]))
				b.check(dgate, "dgate of %v", s).scaled(1)
				b.check(dup, "dup of %v", s).scaled(1)
			}
		}},
		// At a gate of −100, gate·(1 − σ)·σ is a product of small and large.
		{"swiglu_grad/large", tensorops.KindSwiGLUGrad, func(b *builder) {
			dgate, dup := b.garbage(1000), b.garbage(1000)
			b.SwiGLUGrad(dgate, dup, b.normal(1000), b.spread(0, 100, 1000), b.normal(1000))
			b.check(dgate, "dgate")
			b.check(dup, "dup")
		}},
		{"swiglu_grad/in place", tensorops.KindSwiGLUGrad, func(b *builder) {
			dgate, dy := b.garbage(37, 515), b.normal(37, 515)
			b.SwiGLUGrad(dgate, dy, dy, b.normal(37, 515), b.normal(37, 515))
			b.check(dgate, "dgate")
			b.check(dy, "dup = dy")
		}},
	}
	for _, p := range []float64{0, 0.3, 0.9} {
		cases = append(cases, dropoutCases(p)...)
	}
	return eitherType(cases)
}

func dropName(kind string, p float64, variant string) string {
	return fmt.Sprintf("%s/P=%g/%s", kind, p, variant)
}

func dropoutCases(p float64) []Case {
	name := func(variant string) string { return dropName("dropout", p, variant) }
	mask := func(first uint64) tensorops.Mask {
		return tensorops.Mask{Key: rng.NewKey(7, 1), Step: 3, First: first, P: p}
	}
	return []Case{
		{name("shapes"), tensorops.KindDropout, func(b *builder) {
			for _, s := range shapes {
				y := b.garbage(s[0], s[1])
				b.Dropout(y, b.normal(s[0], s[1]), none, mask(0))
				b.check(y, "y of %v", s)
			}
		}},
		// The mask does not start with a block of random words, and its index
		// does not fit in 32 bits.
		{name("from the middle"), tensorops.KindDropout, func(b *builder) {
			for _, first := range []uint64{1, 2, 3, 4, 1_000_003, 1<<32 - 2, 1<<40 + 5} {
				y := b.garbage(37, 515)
				b.Dropout(y, b.normal(37, 515), none, mask(first))
				b.check(y, "y from %d", first)
			}
		}},
		{name("steps and keys"), tensorops.KindDropout, func(b *builder) {
			x := b.normal(1003)
			for _, m := range []tensorops.Mask{
				{Key: rng.NewKey(7, 2), Step: 3, P: p},
				{Key: rng.NewKey(8, 1), Step: 3, P: p},
				{Key: rng.NewKey(7, 1), Step: 1<<32 + 1, P: p},
			} {
				y := b.garbage(1003)
				b.Dropout(y, x, none, m)
				b.check(y, "y for key %v and step %d", m.Key, m.Step)
			}
		}},
		{name("skip"), tensorops.KindDropout, func(b *builder) {
			for _, s := range shapes {
				y := b.garbage(s[0], s[1])
				b.Dropout(y, b.normal(s[0], s[1]), b.normal(s[0], s[1]), mask(6))
				b.check(y, "y of %v", s)
			}
		}},
		{name("in place"), tensorops.KindDropout, func(b *builder) {
			x, skip := b.normal(37, 515), b.normal(37, 515)
			b.Dropout(skip, x, skip, mask(3))
			b.check(skip, "y = skip")
			x = b.normal(37, 515)
			b.Dropout(x, x, b.normal(37, 515), mask(3))
			b.check(x, "y = x, with skip")
			x = b.normal(37, 515)
			b.Dropout(x, x, none, mask(3))
			b.check(x, "y = x")
		}},
	}
}
