package optest

import (
	"math"

	"github.com/troupe-ml/troupe/tensorops"
)

// sinks are attentions whose softmax has a sink.
var sinks = []struct{ batch, queries, heads, d int }{
	{1, 1, 1, 1}, {2, 5, 3, 7}, {1, 0, 2, 4}, {3, 33, 6, 16}, {2, 65, 2, 33}, {1, 300, 5, 64}, {2, 9, 4, 130},
}

func sinkCases() []Case {
	return eitherType([]Case{
		{"attention_sink/shapes", tensorops.KindAttentionSink, func(b *builder) {
			for _, s := range sinks {
				o, lse := b.normal(s.batch*s.queries, s.heads*s.d), b.floats(b.numbers(s.batch*s.heads*s.queries, 2, 3), s.batch, s.heads, s.queries)
				b.AttentionSink(o, lse, b.single(s.heads), tensorops.AttentionOpts{Batch: s.batch, Heads: s.heads})
				b.check(o, "o of %+v", s)
				b.check(lse, "lse of %+v", s).scaled(1)
			}
		}},
		// Documents, of which some queries see no key.
		{"attention_sink/documents", tensorops.KindAttentionSink, func(b *builder) {
			for _, d := range []docs{shortDocs, anyStarts} {
				a := attention{batch: 2, tq: 33, tk: 33, heads: 2, kvHeads: 1, d: 7, docs: d}.record(b)
				b.AttentionSink(a.o, a.lse, b.single(2), a.opts)
				b.check(a.o, "o of %v", d).scaled(1)
				b.check(a.lse, "lse of %v", d).scaled(1)
			}
		}},
		// Queries that see no key, a sink that takes nothing, and one that takes all.
		{"attention_sink/infinities", tensorops.KindAttentionSink, func(b *builder) {
			inf := float32(math.Inf(-1))
			o, lse := b.normal(2, 3*4), b.floats([]float32{inf, 3, 1, -2, 0, 5}, 1, 3, 2)
			b.AttentionSink(o, lse, b.floats([]float32{1, inf, 200}, 3), tensorops.AttentionOpts{Batch: 1, Heads: 3})
			b.check(o, "o")
			b.check(lse, "lse")
		}},
		{"attention_sink_grad/shapes", tensorops.KindAttentionSinkGrad, func(b *builder) {
			for _, s := range sinks {
				rows, cols := s.batch*s.queries, s.heads*s.d
				dsinks, do, o, sink := b.single(s.heads), b.normal(rows, cols), b.normal(rows, cols), b.single(s.heads)
				lse := b.floats(b.numbers(rows*s.heads, 2, 1), s.batch, s.heads, s.queries)
				b.AttentionSinkGrad(dsinks, do, o, lse, sink, tensorops.AttentionOpts{Batch: s.batch, Heads: s.heads})
				b.check(dsinks, "dsinks of %+v", s).summed(rows * s.d)
			}
		}},
	})
}
