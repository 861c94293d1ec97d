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
				b.AddPositions(out, b.normal(s.n, s.c), b.normal(s.rows, s.c), s.period, s.first)
				b.check(out, "out of %v", s)
			}
		}},
		{"add_positions/in place", tensorops.KindAddPositions, func(b *builder) {
			x := b.normal(3, 17, 129)
			b.AddPositions(x, x, b.normal(40, 129), 17, 4)
			b.check(x, "out = x")
		}},
		{"positions_grad/shapes", tensorops.KindPositionsGrad, func(b *builder) {
			for _, s := range positions {
				grad := b.single(s.rows, s.c)
				b.PositionsGrad(grad, b.normal(s.n, s.c), s.period, s.first)
				b.check(grad, "grad of %v", s)
			}
		}},
	})
}

// positions are n rows of c elements in periods, which start at row first of a
// weight.
var positions = []struct{ n, c, rows, period, first int }{
	{0, 8, 4, 4, 0},
	{1, 1, 1, 1, 0},
	{6, 5, 9, 3, 2},
	{64, 129, 16, 16, 0},
	{260, 300, 70, 65, 5},
}
