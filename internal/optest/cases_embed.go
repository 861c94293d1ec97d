package optest

import "github.com/troupe-ml/troupe/tensorops"

func embedCases() []Case {
	return eitherType([]Case{
		{"embed/shapes", tensorops.KindEmbed, func(b *builder) {
			for _, s := range []struct{ n, c, v int }{{0, 8, 3}, {1, 1, 1}, {5, 7, 3}, {300, 129, 40}, {64, 515, 1000}} {
				out := b.garbage(s.n, s.c)
				b.Embed(out, b.normal(s.v, s.c), b.tokens(s.v, s.n))
				b.check(out, "out of %v", s)
			}
		}},
		{"embed/first and last", tensorops.KindEmbed, func(b *builder) {
			out := b.garbage(2, 2, 5)
			b.Embed(out, b.normal(9, 5), b.ints([]int32{8, 0, 0, 8}, 2, 2))
			b.check(out, "out")
		}},
		{"embed/ids from the middle", tensorops.KindEmbed, func(b *builder) {
			out := b.garbage(4, 5)
			b.Embed(out, b.normal(9, 5), b.tokens(9, 10, 1).RowRange(3, 7))
			b.check(out, "out")
		}},
		// Many rows share a token, and their gradients add up.
		{"embed_grad/shapes", tensorops.KindEmbedGrad, func(b *builder) {
			for _, s := range []struct{ n, c, v int }{{0, 8, 3}, {1, 1, 1}, {5, 7, 3}, {300, 129, 40}, {64, 515, 1000}, {500, 3, 2}} {
				grad := b.single(s.v, s.c)
				b.EmbedGrad(grad, b.normal(s.n, s.c), b.tokens(s.v, s.n))
				b.check(grad, "grad of %v", s).summed(s.n / s.v)
			}
		}},
		{"embed_grad/twice", tensorops.KindEmbedGrad, func(b *builder) {
			grad, ids := b.single(7, 5), b.tokens(7, 20)
			b.EmbedGrad(grad, b.normal(20, 5), ids)
			b.EmbedGrad(grad, b.normal(20, 5), ids)
			b.check(grad, "grad")
		}},
		{"add_positions/shapes", tensorops.KindAddPositions, func(b *builder) {
			for _, s := range positions {
				out := b.garbage(s.n, s.c)
				b.AddPositions(out, b.normal(s.n, s.c), b.normal(s.rows, s.c), s.opts(b))
				b.check(out, "out of %v", s)
			}
		}},
		{"add_positions/in place", tensorops.KindAddPositions, func(b *builder) {
			x := b.normal(3, 17, 129)
			b.AddPositions(x, x, b.normal(40, 129), tensorops.PositionOpts{Period: 17, First: 4})
			b.check(x, "out = x")
		}},
		{"positions_grad/shapes", tensorops.KindPositionsGrad, func(b *builder) {
			for _, s := range positions {
				grad := b.single(s.rows, s.c)
				b.PositionsGrad(grad, b.normal(s.n, s.c), s.opts(b))
				b.check(grad, "grad of %v", s)
			}
		}},
	})
}

// positions are n rows of c elements in periods, which start at row first of a
// weight.
var positions = []rowPositions{
	{n: 0, c: 8, rows: 4, period: 4},
	{n: 1, c: 1, rows: 1, period: 1},
	{n: 6, c: 5, rows: 9, period: 3, first: 2},
	{n: 64, c: 129, rows: 16, period: 16},
	{n: 260, c: 300, rows: 70, period: 65, first: 5},
	{n: 0, c: 8, rows: 4, period: 4, docs: oneDoc},
	{n: 64, c: 129, rows: 16, period: 16, docs: tokenDocs},
	{n: 260, c: 300, rows: 70, period: 65, first: 5, docs: shortDocs},
	{n: 66, c: 7, rows: 40, period: 33, docs: anyStarts}, // some outside the weight
}

type rowPositions struct {
	n, c, rows, period, first int
	docs                      docs
}

func (p rowPositions) opts(b *builder) tensorops.PositionOpts {
	return tensorops.PositionOpts{Period: p.period, First: p.first, Starts: p.docs.starts(b, p.n/p.period, p.period, p.period, p.first)}
}
