package optest

import (
	"math"

	"github.com/troupe-ml/troupe/tensorops"
)

func optimCases() []Case {
	return []Case{
		{"squared_norm/lengths", tensorops.KindSquaredNorm, func(b *builder) {
			for _, n := range []int{0, 1, 2, 1023, 1024, 1025, 8191, 8193, 100_003} {
				out := b.garbage64(1)
				b.SquaredNorm(out, b.normal(n))
				b.check(out, "out of %d", n)
			}
		}},
		// Whoever squares in float32 overflows, or loses all.
		{"squared_norm/huge and tiny", tensorops.KindSquaredNorm, func(b *builder) {
			for _, deviation := range []float64{1e30, 1e-30} {
				out := b.garbage64(1)
				b.SquaredNorm(out, b.spread(0, deviation, 3000))
				b.check(out, "out for a deviation of %g", deviation)
			}
		}},
		{"squared_norm/not finite", tensorops.KindSquaredNorm, func(b *builder) {
			for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
				for _, at := range []int{0, 4097, 9999} {
					x, out := b.normal(10_000, 1), b.garbage64(1)
					b.Fill(x.RowRange(at, at+1), v)
					b.SquaredNorm(out, x)
					b.check(out, "out with %g at %d", v, at)
				}
			}
		}},
		{"adamw/steps", tensorops.KindAdamW, func(b *builder) {
			for _, n := range []int{0, 1, 7, 20_011} {
				w, m, v := b.normal(n), b.garbage(n), b.garbage(n)
				b.Fill(m, 0)
				b.Fill(v, 0)
				for step := 1; step <= 5; step++ {
					b.AdamW(w, m, v, b.normal(n), tensorops.AdamWOpts{
						LR: 1e-2, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.1, GradScale: 0.37, Step: step,
					})
				}
				b.check(w, "w of %d", n)
				b.check(m, "m of %d", n)
				b.check(v, "v of %d", n)
			}
		}},
		{"adamw/late", tensorops.KindAdamW, func(b *builder) {
			squares := b.numbers(1003, 0, 1e-3)
			for i := range squares {
				squares[i] *= squares[i]
			}
			w, m, v := b.normal(1003), b.spread(0, 1e-3, 1003), b.floats(squares, 1003)
			b.AdamW(w, m, v, b.spread(0, 1e-3, 1003), tensorops.AdamWOpts{
				LR: 1e-3, Beta1: 0.9, Beta2: 0.99, Eps: 1e-3, GradScale: 1, Step: 100_000,
			})
			b.check(w, "w")
			b.check(m, "m")
			b.check(v, "v")
		}},
		{"adamw/clear", tensorops.KindAdamW, func(b *builder) {
			for _, n := range []int{1, 33, 20_011} {
				w, m, v, g := b.normal(n), b.normal(n), b.garbage(n), b.normal(n)
				b.Fill(v, 1)
				b.AdamW(w, m, v, g, tensorops.AdamWOpts{LR: 0.1, Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, GradScale: 1, Step: 2, ClearGrad: true})
				b.check(w, "w of %d", n)
				b.check(g, "g of %d", n)
			}
		}},
		{"adamw/copy", tensorops.KindAdamW, func(b *builder) {
			for _, n := range []int{0, 1, 33, 20_011} {
				w, m, v, c := b.normal(n), b.normal(n), b.garbage(n), b.half(n)
				b.Fill(v, 1)
				b.AdamW(w, m, v, b.normal(n), tensorops.AdamWOpts{LR: 0.1, Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, GradScale: 1, Step: 2, Copy: c})
				b.check(w, "w of %d", n)
				b.check(c, "copy of %d", n)
			}
		}},
		// Without a gradient there is 0/(√0 + eps): weights only decay.
		{"adamw/no gradient", tensorops.KindAdamW, func(b *builder) {
			w, m, v, g := b.normal(100), b.garbage(100), b.garbage(100), b.garbage(100)
			for _, t := range []tensorops.Tensor{m, v, g} {
				b.Fill(t, 0)
			}
			b.AdamW(w, m, v, g, tensorops.AdamWOpts{LR: 0.1, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, WeightDecay: 0.5, GradScale: 1, Step: 1})
			b.check(w, "w")
		}},
		{"sgd/momentum", tensorops.KindSGD, func(b *builder) {
			for _, n := range []int{0, 1, 7, 20_011} {
				w, m := b.normal(n), b.normal(n)
				for range 3 {
					b.SGD(w, m, b.normal(n), tensorops.SGDOpts{LR: 0.1, Momentum: 0.9, WeightDecay: 0.01, GradScale: 0.5})
				}
				b.check(w, "w of %d", n)
				b.check(m, "m of %d", n)
			}
		}},
		{"sgd/copy", tensorops.KindSGD, func(b *builder) {
			for _, n := range []int{0, 1, 33, 20_011} {
				w, c := b.normal(n), b.half(n)
				b.SGD(w, none, b.normal(n), tensorops.SGDOpts{LR: 0.1, WeightDecay: 0.01, GradScale: 0.5, Copy: c})
				b.check(c, "copy of %d", n)
			}
		}},
		{"sgd/plain", tensorops.KindSGD, func(b *builder) {
			for _, n := range []int{0, 1, 7, 20_011} {
				w := b.normal(n)
				b.SGD(w, none, b.normal(n), tensorops.SGDOpts{LR: 0.1, WeightDecay: 0.01, GradScale: 0.5})
				b.check(w, "w of %d", n)
			}
		}},
	}
}
