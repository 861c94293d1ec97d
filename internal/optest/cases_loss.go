package optest

import (
	"math"

	"github.com/troupe-ml/troupe/tensorops"
)

// losses are n rows of logits over a vocabulary of v; every masked-th target is
// ignored.
var losses = []struct {
	n, v, masked int
	deviation    float64
}{
	{0, 7, 0, 1},
	{1, 1, 0, 1},
	{1, 2, 0, 1},
	{37, 7, 0, 1},
	{64, 257, 3, 1},
	{33, 5003, 5, 1},
	{300, 65, 0, 3},
	{10, 65, 1, 1},    // no targets at all
	{64, 129, 4, 80},  // probabilities of 0 and 1
	{64, 129, 0, 1e3}, // exponentials beyond float32, in both directions
}

func lossCases() []Case {
	inputs := func(b *builder, n, v, masked int, deviation float64) (logits, targets tensorops.Tensor) {
		logits = b.spread(0, deviation, n, v)
		targets = b.tokens(v, n)
		if masked > 0 {
			for i := 0; i < n; i += masked {
				b.Fill(targets.View(n, 1).RowRange(i, i+1), tensorops.IgnoreTarget)
			}
		}
		return logits, targets
	}
	return eitherType(append(distillCases(), []Case{
		{"cross_entropy/shapes", tensorops.KindCrossEntropy, func(b *builder) {
			for _, s := range losses {
				logits, targets := inputs(b, s.n, s.v, s.masked, s.deviation)
				stats, lse := b.garbage64(tensorops.LossStats), b.garbage64(s.n)
				b.CrossEntropy(stats, lse, logits, targets, tensorops.CrossEntropyOpts{})
				b.check(stats, "stats of %+v", s)
				b.check(lse, "lse of %+v", s).scaled(1)
			}
		}},
		{"cross_entropy/certain", tensorops.KindCrossEntropy, func(b *builder) {
			logits := b.floats([]float32{80, -80, -80, 80, 0, 0}, 3, 2)
			stats, lse := b.garbage64(tensorops.LossStats), b.garbage64(3)
			b.CrossEntropy(stats, lse, logits, b.ints([]int32{0, 0, 1}, 3), tensorops.CrossEntropyOpts{})
			b.check(stats, "stats")
			b.check(lse, "lse")
		}},
		{"cross_entropy/minus infinity", tensorops.KindCrossEntropy, func(b *builder) { // of what can't be chosen
			none := float32(math.Inf(-1))
			logits := b.floats([]float32{none, 1, none, none, 2, 3, none, none, none, none}, 2, 5)
			stats, lse, grad := b.garbage64(tensorops.LossStats), b.garbage64(2), b.garbage(2, 5)
			b.CrossEntropy(stats, lse, logits, b.ints([]int32{4, 0}, 2), tensorops.CrossEntropyOpts{Grad: grad, Scale: 1})
			b.check(stats, "stats")
			b.check(lse, "lse")
			b.check(grad, "dlogits")
		}},
		{"cross_entropy/rows from the middle", tensorops.KindCrossEntropy, func(b *builder) {
			logits, targets := b.normal(20, 9), b.tokens(9, 20, 1)
			stats, lse := b.garbage64(3, tensorops.LossStats), b.garbage64(20, 1)
			b.CrossEntropy(stats.RowRange(1, 2), lse.RowRange(5, 9), logits.RowRange(2, 6), targets.RowRange(11, 15), tensorops.CrossEntropyOpts{})
			b.check(stats, "stats")
			b.check(lse, "lse")
		}},
		{"cross_entropy/gradient", tensorops.KindCrossEntropy, func(b *builder) {
			for _, s := range losses {
				logits, targets := inputs(b, s.n, s.v, s.masked, s.deviation)
				stats, lse, dlogits := b.garbage64(tensorops.LossStats), b.garbage64(s.n), b.garbage(s.n, s.v)
				b.CrossEntropy(stats, lse, logits, targets, tensorops.CrossEntropyOpts{Grad: dlogits, Scale: 0.125})
				b.check(stats, "stats of %+v", s)
				b.check(dlogits, "dlogits of %+v", s).scaled(0.125)
				b.CrossEntropy(stats, lse, logits, targets, tensorops.CrossEntropyOpts{Grad: logits, Scale: 1})
				b.check(lse, "lse of %+v", s).scaled(1)
				b.check(logits, "dlogits = logits of %+v", s).scaled(1)
			}
		}},
		{"cross_entropy/row factors", tensorops.KindCrossEntropy, func(b *builder) {
			for _, s := range losses {
				logits, targets := inputs(b, s.n, s.v, s.masked, s.deviation)
				stats, lse, dlogits := b.garbage64(tensorops.LossStats), b.garbage64(s.n), b.garbage(s.n, s.v)
				b.CrossEntropy(stats, lse, logits, targets, tensorops.CrossEntropyOpts{Grad: dlogits, Scale: 0.5, RowScale: factors(b, s.n)})
				b.check(stats, "stats of %+v", s)
				b.check(dlogits, "dlogits of %+v", s).scaled(1)
			}
		}},
		// As a head has them whose rows begin at multiples of what a device reads at once.
		{"cross_entropy/padded rows", tensorops.KindCrossEntropy, func(b *builder) {
			for _, s := range []struct{ n, v, wide int }{{3, 57, 64}, {5, 5003, 5056}, {2, 30000, 30016}, {1, 7, 9}} {
				whole, other := b.spread(0, 2, s.n, s.wide), b.garbage(s.n, s.wide+8)
				logits, targets := whole.Columns(0, s.v), b.tokens(s.v, s.n)
				dlogits := other.Columns(8, 8+s.v)
				stats, lse := b.garbage64(tensorops.LossStats), b.garbage64(s.n)
				b.Fill(other, 7) // no op writes past its rows
				b.CrossEntropy(stats, lse, logits, targets, tensorops.CrossEntropyOpts{Grad: dlogits, Scale: 0.25})
				b.check(other, "dlogits of %+v", s).scaled(0.25)
				b.check(whole, "logits of %+v", s)
				b.CrossEntropy(stats, lse, logits, targets, tensorops.CrossEntropyOpts{Grad: logits, Scale: 1})
				b.check(stats, "stats of %+v", s)
				b.check(lse, "lse of %+v", s).scaled(1)
				b.check(whole, "dlogits = logits of %+v", s).scaled(1)
			}
		}},
		{"cross_entropy_join/padded rows", tensorops.KindCrossEntropyJoin, func(b *builder) {
			const n, v, wide = 6, 57, 64
			parts, targets, whole := b.garbage64(n, tensorops.LossParts), b.tokens(v, n), b.spread(0, 2, n, wide)
			logits, at := whole.Columns(0, v), tensorops.VocabSlice{First: 0, Vocab: v}
			stats, lse := b.garbage64(tensorops.LossStats), b.garbage64(n)
			b.CrossEntropyPart(parts, logits, targets, at)
			b.check(parts, "parts").scaled(1)
			b.CrossEntropyJoin(stats, lse, parts, targets, logits, at, tensorops.CrossEntropyOpts{Grad: logits, Scale: 1})
			b.check(stats, "stats")
			b.check(whole, "dlogits = logits").scaled(1)
		}},
		{"cross_entropy_join/row factors", tensorops.KindCrossEntropyJoin, func(b *builder) {
			const n, v = 6, 57
			parts, targets, logits := b.garbage64(n, tensorops.LossParts), b.tokens(v, n), b.spread(0, 2, n, v)
			stats, lse, at := b.garbage64(tensorops.LossStats), b.garbage64(n), tensorops.VocabSlice{First: 0, Vocab: v}
			o := tensorops.CrossEntropyOpts{Grad: logits, Scale: 1, RowScale: factors(b, n)}
			b.CrossEntropyPart(parts, logits, targets, at)
			b.CrossEntropyJoin(stats, lse, parts, targets, logits, at, o)
			b.check(stats, "stats")
			b.check(logits, "dlogits = logits").scaled(1)
		}},
		{"cross_entropy_part/shapes", tensorops.KindCrossEntropyPart, func(b *builder) {
			for _, s := range losses {
				logits, targets := inputs(b, s.n, s.v, s.masked, s.deviation)
				for _, at := range []tensorops.VocabSlice{{First: 0, Vocab: s.v}, {First: 3, Vocab: s.v + 5}} {
					parts := b.garbage64(s.n, tensorops.LossParts)
					b.CrossEntropyPart(parts, logits, targets, at)
					b.check(parts, "parts of %+v, %+v", s, at).scaled(1) // a log-sum may be near 0 where the logits are not
				}
			}
		}},
		{"cross_entropy_join/gradient", tensorops.KindCrossEntropyJoin, func(b *builder) {
			for _, s := range losses {
				for slices := 1; slices <= 3; slices += 2 {
					joined(b, slices, s.n, s.v, s.masked, s.deviation)
				}
			}
		}},
	}...))
}

// factors are factors of n rows of a gradient, of both signs, and 0.
func factors(b *builder, n int) tensorops.Tensor {
	f := b.garbage64(n)
	for i := range n {
		b.Fill(f.View(n, 1).RowRange(i, i+1), float64(i%5-2)/2)
	}
	return f
}

// joined makes a loss of logits in slices, and each one's gradient.
func joined(b *builder, slices, n, v, masked int, deviation float64) {
	targets, parts := b.tokens(slices*v, n), b.garbage64(slices*n, tensorops.LossParts)
	if masked > 0 {
		for i := 0; i < n; i += masked {
			b.Fill(targets.View(n, 1).RowRange(i, i+1), tensorops.IgnoreTarget)
		}
	}
	var logits []tensorops.Tensor
	for i := range slices {
		logits = append(logits, b.spread(0, deviation, n, v))
		b.CrossEntropyPart(parts.RowRange(i*n, (i+1)*n), logits[i], targets, tensorops.VocabSlice{First: i * v, Vocab: slices * v})
	}
	stats, lse := b.garbage64(tensorops.LossStats), b.garbage64(n)
	b.CrossEntropyJoin(stats, lse, parts, targets, tensorops.Tensor{}, tensorops.VocabSlice{}, tensorops.CrossEntropyOpts{})
	b.check(stats, "stats of %d slices, %d rows of %d", slices, n, v)
	b.check(lse, "lse of %d slices, %d rows of %d", slices, n, v).scaled(1)
	for i, t := range logits {
		dlogits := b.garbage(n, v)
		o := tensorops.CrossEntropyOpts{Grad: dlogits, Scale: 0.125}
		b.CrossEntropyJoin(stats, lse, parts, targets, t, tensorops.VocabSlice{First: i * v, Vocab: slices * v}, o)
		b.check(dlogits, "dlogits of slice %d of %d, %d rows of %d", i, slices, n, v).scaled(0.125)
		o.Grad, o.Scale = t, 1
		b.CrossEntropyJoin(stats, lse, parts, targets, t, tensorops.VocabSlice{First: i * v, Vocab: slices * v}, o)
		b.check(t, "dlogits = logits of slice %d of %d, %d rows of %d", i, slices, n, v).scaled(1)
	}
}
