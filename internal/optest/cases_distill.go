package optest

import (
	"math"

	"github.com/troupe-ml/troupe/tensorops"
)

// distillCases are losses beside a teacher's likely ids.
func distillCases() []Case {
	return []Case{
		{"distill/shapes", tensorops.KindDistill, func(b *builder) {
			for n, s := range losses {
				for m, k := range []int{1, 5, 64, s.v} {
					if k > s.v {
						continue
					}
					for i, o := range []tensorops.DistillOpts{{Temperature: 1, Weight: 1}, {Temperature: 1, Weight: 0.25, Reverse: true},
						{Temperature: 2, Weight: 0.5}, {Temperature: 0.75, Weight: 1, Reverse: true}} {
						if (n+m+i)%2 == 0 {
							continue
						}
						distilled(b, s.n, s.v, k, s.masked, math.Min(s.deviation, 20), o)
					}
				}
			}
		}},
		{"distill/padded rows", tensorops.KindDistill, func(b *builder) {
			const n, v, wide, k = 6, 57, 64, 4
			whole, targets := b.spread(0, 2, n, wide), b.tokens(v, n)
			ids, logp := teacher(b, n, v, k, 1)
			logits, stats := whole.Columns(0, v), b.garbage64(tensorops.DistillStats)
			b.Distill(stats, logits, targets, ids, logp, tensorops.DistillOpts{Grad: logits, Scale: 1, Temperature: 3, Weight: 0.5})
			b.check(stats, "stats")
			b.check(whole, "dlogits = logits").scaled(1)
		}},
	}
}

// distilled makes a loss and its gradient, in memory of its own and in that of the logits.
func distilled(b *builder, n, v, k, masked int, deviation float64, o tensorops.DistillOpts) {
	logits, targets := b.spread(0, deviation, n, v), b.tokens(v, n)
	if masked > 0 {
		for i := 0; i < n; i += masked {
			b.Fill(targets.View(n, 1).RowRange(i, i+1), tensorops.IgnoreTarget)
		}
	}
	ids, logp := teacher(b, n, v, k, deviation)
	stats, dlogits := b.garbage64(tensorops.DistillStats), b.garbage(n, v)
	b.Distill(stats, logits, targets, ids, logp, o)
	b.check(stats, "stats of %d rows of %d, %d ids, %+v", n, v, k, o).scaled(1)
	o.Grad, o.Scale = dlogits, 0.125
	b.Distill(stats, logits, targets, ids, logp, o)
	b.check(dlogits, "dlogits of %d rows of %d, %d ids, %+v", n, v, k, o).scaled(1)
	o.Grad, o.Scale = logits, 1
	b.Distill(stats, logits, targets, ids, logp, o)
	b.check(logits, "dlogits = logits of %d rows of %d, %d ids, %+v", n, v, k, o).scaled(8)
}

// teacher makes k different ids for each row, and the log-probabilities of these and of all others.
func teacher(b *builder, n, v, k int, deviation float64) (ids, logp tensorops.Tensor) {
	var all []int32
	var logs []float32
	values := b.numbers(n*(k+1), 0, deviation)
	for i := range n {
		for j := range k {
			all = append(all, int32((7*i+j)%v)) // different, since k ≤ v
		}
		row := values[i*(k+1):][:k+1]
		top, sum := math.Inf(-1), 0.0
		for _, x := range row {
			top = math.Max(top, float64(x))
		}
		for j, x := range row {
			if j < k || k < v {
				sum += math.Exp(float64(x) - top)
			}
		}
		for _, x := range row {
			logs = append(logs, float32(float64(x)-top-math.Log(sum)))
		}
	}
	return b.ints(all, n, k), b.floats(logs, n, k+1)
}
