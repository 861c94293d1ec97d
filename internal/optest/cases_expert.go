package optest

import (
	"fmt"
	"math"
	"slices"

	"github.com/troupe-ml/troupe/tensorops"
)

// routes are rows, experts, and experts of a row.
var routes = [][3]int{{0, 3, 2}, {1, 1, 1}, {5, 8, 8}, {37, 16, 3}, {3, 300, 1}, {200, 130, 7}}

// routings are options of routers.
var routings = []struct {
	tensorops.RouteOpts
	bias bool
}{
	{}, {RouteOpts: tensorops.RouteOpts{Renormalize: true}}, {RouteOpts: tensorops.RouteOpts{Scale: 2.5}, bias: true},
	{RouteOpts: tensorops.RouteOpts{Sigmoid: true, Renormalize: true, Scale: 1.5}, bias: true},
	{RouteOpts: tensorops.RouteOpts{Sigmoid: true}},
}

// groupings are rows, experts, experts of a row, groups, and groups of a row.
var groupings = [][5]int{{0, 4, 2, 2, 1}, {7, 4, 4, 2, 2}, {37, 16, 3, 4, 2}, {9, 12, 5, 3, 2}, {3, 256, 8, 8, 4}, {50, 6, 2, 3, 1}}

// routed are the results of a router.
type routed struct{ scores, weights, experts, places, offsets tensorops.Tensor }

func (b *builder) blank(dims ...int) tensorops.Tensor {
	return b.ints(slices.Repeat([]int32{-7}, product(dims)), dims...)
}

// route records a router over given logits.
func (b *builder) route(logits, bias tensorops.Tensor, k int, r tensorops.RouteOpts) (to routed) {
	n, experts := logits.Rows(), logits.Cols()
	to = routed{b.garbage32(n, experts), b.garbage32(n, k), b.blank(n, k), b.blank(n, k), b.blank(experts + 1)}
	b.Route(to.scores, to.weights, to.experts, to.places, to.offsets, logits, bias, r)
	return to
}

func (b *builder) checkRoute(r routed, what any) {
	b.check(r.experts, "experts of %v", what)
	b.check(r.places, "places of %v", what)
	b.check(r.offsets, "offsets of %v", what)
	b.check(r.scores, "scores of %v", what)
	b.check(r.weights, "weights of %v", what)
}

// held are groups of rows by their experts.
var held = [][]int{{}, {0}, {5}, {0, 0, 9, 0}, {3, 0, 17, 1, 8}, {300, 1, 0, 64}, slices.Repeat([]int{2, 0, 3}, 20)}

func offsetsOf(counts []int) (offsets []int32, rows int) {
	offsets = []int32{0}
	for _, n := range counts {
		rows += n
		offsets = append(offsets, int32(rows))
	}
	return offsets, rows
}

// grouped is one product of groups.
type grouped struct {
	counts []int
	n, k   int
	tensorops.GroupedOpts
}

func (g grouped) String() string {
	return fmt.Sprintf("%v×%d×%d %+v", g.counts, g.n, g.k, g.GroupedOpts)
}

func (g grouped) record(b *builder) {
	at, rows := offsetsOf(g.counts)
	offsets := b.ints(at, len(at))
	dims := []int{len(g.counts), g.k, g.n}
	if g.TransB {
		dims[1], dims[2] = g.n, g.k
	}
	c := b.garbage(rows, g.n)
	if g.Accumulate {
		c = b.single(rows, g.n)
	}
	b.GroupedMatMul(c, b.normal(rows, g.k), b.normal(dims...), offsets, g.GroupedOpts)
	b.check(c, "C of %v", g).summed(g.k)
	if !g.Accumulate {
		c, o := b.garbage(rows, g.n), g.GroupedOpts
		o.Bias = b.single(len(g.counts), g.n)
		b.GroupedMatMul(c, b.normal(rows, g.k), b.normal(dims...), offsets, o)
		b.check(c, "C with a bias of %v", g).summed(g.k)
	}
	w, o := b.normal(dims...), g.GroupedOpts
	o.Packed = b.packed(len(g.counts)*tensorops.PackedLen(g.k, g.n), g.BF16)
	b.PackExperts(o.Packed, w, len(g.counts), g.TransB, g.BF16)
	c = b.garbage(rows, g.n)
	if g.Accumulate {
		c = b.single(rows, g.n)
	}
	b.GroupedMatMul(c, b.normal(rows, g.k), w, offsets, o)
	b.check(c, "C by packed matrices of %v", g).summed(g.k)
	dweight := b.single(len(g.counts), g.n, g.k)
	b.GroupedWeightGrad(dweight, b.normal(rows, g.n), b.normal(rows, g.k), offsets, g.BF16)
	b.check(dweight, "dweight of %v", g).summed(rows)
}

// recordSources is record for rows of several sources, of which the last rows belong to no expert.
func (g grouped) recordSources(b *builder, source int) {
	at, used := offsetsOf(g.counts)
	rows, experts, offsets := used+3, len(g.counts)/g.Sources, b.ints(at, len(at))
	c := b.garbage(rows, g.n)
	b.GroupedMatMul(c, b.normal(rows, g.k), b.normal(experts, g.k, g.n), offsets, g.GroupedOpts)
	b.check(c.RowRange(0, used), "C of %v", g).summed(g.k)
	biased := g.GroupedOpts
	biased.Bias, c = b.single(experts, g.n), b.garbage(rows, g.n)
	b.GroupedMatMul(c, b.normal(rows, g.k), b.normal(experts, g.k, g.n), offsets, biased)
	b.check(c.RowRange(0, used), "C with a bias of %v", g).summed(g.k)
	dweight := b.single(experts, g.n, g.k)
	b.SourceWeightGrad(dweight, b.normal(rows, g.n), b.normal(rows, g.k), offsets, source, g.Sources, g.BF16)
	b.check(dweight, "dweight of %v from source %d", g, source).summed(used)
}

// groupedCases are products of the groups, and gradients of their weights.
func groupedCases(kind tensorops.Kind) []Case {
	all := func(bf16 bool) func(b *builder) {
		return func(b *builder) {
			for i, counts := range held {
				for _, size := range [][2]int{{7, 5}, {33, 64}, {64, 300}} {
					g := grouped{counts, size[0], size[1], tensorops.GroupedOpts{TransB: i%2 == 0, Accumulate: i%3 == 1, BF16: bf16}}
					g.record(b)
				}
			}
			grouped{[]int{70, 3, 150}, 200, 130, tensorops.GroupedOpts{TransB: true, BF16: bf16}}.record(b)
			for _, transB := range []bool{false, true} { // so many rows of each expert that a device may take 128 at a time
				grouped{[]int{70, 200}, 33, 150, tensorops.GroupedOpts{TransB: transB, BF16: bf16}}.record(b)
			}
			grouped{[]int{3, 150}, 130, 0, tensorops.GroupedOpts{BF16: bf16}}.record(b)
			for source := range 3 {
				grouped{[]int{5, 0, 7, 0, 0, 0, 70, 1, 0}, 33, 20, tensorops.GroupedOpts{BF16: bf16, Sources: 3}}.recordSources(b, source)
			}
		}
	}
	rounded := Case{kind.String() + "/bf16", kind, all(true)}
	return []Case{{kind.String() + "/shapes", kind, all(false)}, rounded, rounded.in("bfloat16", tensorops.BFloat16),
		rounded.in("mixed", tensorops.BFloat16, tensorops.Float32, tensorops.BFloat16)}
}

func expertCases() []Case {
	nan := float32(math.NaN())
	var none tensorops.Tensor
	cases := []Case{
		{"route/shapes", tensorops.KindRoute, func(b *builder) {
			for _, s := range routes {
				for _, r := range routings {
					bias := none
					if r.bias {
						bias = b.single(s[1])
					}
					b.checkRoute(b.route(b.single(s[0], s[1]), bias, s[2], r.RouteOpts), fmt.Sprint(s, r))
				}
			}
		}},
		{"route/in place", tensorops.KindRoute, func(b *builder) {
			x := b.single(37, 16)
			r := routed{x, b.garbage32(37, 3), b.blank(37, 3), b.blank(37, 3), b.blank(17)}
			b.Route(r.scores, r.weights, r.experts, r.places, r.offsets, x, none, tensorops.RouteOpts{})
			b.checkRoute(r, "logits")
		}},
		{"route/groups", tensorops.KindRoute, func(b *builder) {
			for _, s := range groupings {
				for _, r := range routings {
					bias := none
					if r.bias {
						bias = b.single(s[1])
					}
					r.Groups, r.TopGroups = s[3], s[4]
					b.checkRoute(b.route(b.single(s[0], s[1]), bias, s[2], r.RouteOpts), fmt.Sprint(s, r))
				}
			}
		}},
		// Of equal groups the lower number is chosen, and NaN comes last, in a group and among groups.
		{"route/groups of ties and infinities", tensorops.KindRoute, func(b *builder) {
			inf := float32(math.Inf(1))
			for top := 1; top <= 2; top++ {
				x := b.floats([]float32{
					1, 1, 1, 1, 1, 1, 0, 9, 3, 3, 3, 3, nan, 9, 1, 1, 0, 0, nan, nan, 2, nan, 1, 0,
					nan, nan, nan, nan, nan, nan, inf, -inf, 0, 0, 1, 1, -inf, -inf, -inf, -inf, -inf, -inf,
				}, 7, 6)
				b.checkRoute(b.route(x, none, 2, tensorops.RouteOpts{Sigmoid: true, Groups: 3, TopGroups: top}), top)
			}
		}},
		// Of equal scores the lower number is chosen; NaN comes last; one expert gets all rows and another one none.
		{"route/ties and infinities", tensorops.KindRoute, func(b *builder) {
			inf := float32(math.Inf(1))
			for _, sigmoid := range []bool{false, true} {
				x := b.floats([]float32{
					1, 1, 1, 1, 1, 2, 1, 2, 3, 3, 0, 3, -inf, 0, -inf, 0, nan, 1, 2, 3, nan, nan, nan, nan, inf, 0, 1, 0, 0, 0, 0, 5,
				}, 8, 4)
				b.checkRoute(b.route(x, none, 2, tensorops.RouteOpts{Sigmoid: sigmoid}), sigmoid)
			}
			skewed := b.floats(slices.Repeat([]float32{0, 9, 1, -9}, 50), 50, 4)
			b.checkRoute(b.route(skewed, none, 1, tensorops.RouteOpts{Renormalize: true}), "one for all")
		}},
		{"route_grad/shapes", tensorops.KindRouteGrad, func(b *builder) {
			for _, s := range routes {
				for _, r := range routings {
					r.Balance = 0.01
					to := b.route(b.single(s[0], s[1]), none, s[2], r.RouteOpts)
					dlogits := b.garbage32(s[0], s[1])
					b.RouteGrad(dlogits, b.single(s[0], s[2]), to.scores, to.experts, to.offsets, none, r.RouteOpts)
					b.check(dlogits, "dlogits of %v %v", s, r).scaled(1)
				}
			}
		}},
		{"route_grad/sequences and z", tensorops.KindRouteGrad, func(b *builder) {
			for _, s := range [][4]int{{0, 3, 2, 2}, {6, 5, 2, 3}, {200, 130, 7, 2}, {12, 8, 8, 12}} {
				for _, sigmoid := range []bool{false, true} {
					r := tensorops.RouteOpts{Sigmoid: sigmoid, Renormalize: true, Balance: 0.02, Sequences: s[3], ZLoss: 0.03}
					logits := b.single(s[0], s[1])
					to := b.route(logits, none, s[2], r)
					dlogits := b.garbage32(s[0], s[1])
					b.RouteGrad(dlogits, b.single(s[0], s[2]), to.scores, to.experts, to.offsets, logits, r)
					b.check(dlogits, "dlogits of %v, sigmoids %v", s, sigmoid).scaled(1)
					stats := b.garbage64(tensorops.RouteCounts + s[1])
					b.Fill(stats, 1)
					b.RouteStats(stats, to.scores, to.experts, to.offsets, logits, r)
					b.check(stats, "stats of %v, sigmoids %v", s, sigmoid)
				}
			}
		}},
		// Each run has as many rows again on another rank, and the first row of this one is left out.
		{"route_grad/loads", tensorops.KindRouteGrad, func(b *builder) {
			for _, s := range [][4]int{{6, 5, 2, 3}, {200, 130, 7, 2}, {12, 8, 8, 0}} {
				for _, sigmoid := range []bool{false, true} {
					r := tensorops.RouteOpts{Sigmoid: sigmoid, Renormalize: true, Balance: 0.02, Sequences: s[3], ZLoss: 0.03}
					logits := b.single(s[0], s[1])
					to, other := b.route(logits, none, s[2], r), b.route(b.single(s[0], s[1]), none, s[2], r)
					b.Fill(to.experts.RowRange(0, 1), -1)
					r.Loads = b.garbage32(max(s[3], 1), s[1])
					b.Fill(r.Loads, 0)
					b.RouteCount(r.Loads, to.experts)
					b.RouteCount(r.Loads, other.experts)
					dlogits := b.garbage32(s[0], s[1])
					b.RouteGrad(dlogits, b.single(s[0], s[2]), to.scores, to.experts, to.offsets, logits, r)
					b.check(dlogits, "dlogits of %v, sigmoids %v", s, sigmoid).scaled(1)
					stats := b.garbage64(tensorops.RouteCounts + s[1])
					b.Fill(stats, 1)
					b.RouteStats(stats, to.scores, to.experts, to.offsets, logits, r)
					b.check(stats, "stats of %v, sigmoids %v", s, sigmoid)
				}
			}
		}},
		// Sigmoids of 0 divide nothing by nothing.
		{"route_grad/no scores", tensorops.KindRouteGrad, func(b *builder) {
			r := tensorops.RouteOpts{Sigmoid: true, Renormalize: true, Balance: 0.5}
			to := b.route(b.floats(slices.Repeat([]float32{float32(math.Inf(-1))}, 6), 2, 3), none, 2, r)
			b.check(to.weights, "weights")
			dlogits := b.garbage32(2, 3)
			b.RouteGrad(dlogits, b.single(2, 2), to.scores, to.experts, to.offsets, none, r)
			b.check(dlogits, "dlogits")
		}},
		{"route_stats/shapes", tensorops.KindRouteStats, func(b *builder) {
			for _, s := range routes {
				to := b.route(b.single(s[0], s[1]), none, s[2], tensorops.RouteOpts{})
				stats := b.garbage64(tensorops.RouteCounts + s[1])
				b.Fill(stats, 1)
				b.RouteStats(stats, to.scores, to.experts, to.offsets, none, tensorops.RouteOpts{})
				b.check(stats, "stats of %v", s)
			}
		}},
		{"source_offsets/shapes", tensorops.KindSourceOffsets, func(b *builder) {
			for _, s := range [][2]int{{1, 1}, {1, 4}, {2, 2}, {3, 6}, {4, 16}, {2, 0}, {8, 520}} {
				var table []int32
				for source := range s[0] {
					counts := make([]int, s[1])
					for e := range counts {
						counts[e] = (source*7 + e*5) % 4
					}
					row, _ := offsetsOf(counts)
					table = append(table, row...)
				}
				for rank := range s[0] {
					offsets := b.blank(s[1] + 1)
					b.SourceOffsets(offsets, b.ints(table, s[0], s[1]+1), rank)
					b.check(offsets, "offsets of rank %d of %v", rank, s)
				}
			}
		}},
		// A score of 0 has no entropy.
		{"route_stats/zero", tensorops.KindRouteStats, func(b *builder) {
			stats := b.garbage64(tensorops.RouteCounts + 2)
			b.Fill(stats, 0)
			b.RouteStats(stats, b.floats([]float32{1, 0, 0, 1, 1, 0}, 3, 2), b.ints([]int32{0, 1, 0}, 3, 1), b.ints([]int32{0, 2, 3},
				3), none,
				tensorops.RouteOpts{})
			b.check(stats, "stats")
		}},
	}
	cases = append(cases, balanceCases()...)
	cases = append(cases, eitherType([]Case{
		{"grouped_col_sum/shapes", tensorops.KindGroupedColSum, func(b *builder) {
			for i, counts := range held {
				b.groupedColSum(counts, []int{1, 7, 64, 515, 33, 1025, 130}[i])
			}
			b.eachDispatch(b.weighedColSum)
			for source := range 3 {
				b.sourceColSum([]int{5, 0, 7, 0, 0, 0, 700, 1, 0}, 33, source, 3)
			}
		}},
		{"weigh_bias/shapes", tensorops.KindWeighBias, func(b *builder) {
			for i, s := range routes {
				b.weighBias(s[0], s[1], s[2], []int{1, 7, 64, 515, 1025, 33}[i])
			}
		}},
		{"dispatch/shapes", tensorops.KindDispatch, func(b *builder) { b.eachDispatch(b.dispatch) }},
		{"combine/shapes", tensorops.KindCombine, func(b *builder) { b.eachDispatch(b.combine) }},
		{"weigh_rows/shapes", tensorops.KindWeighRows, func(b *builder) { b.eachDispatch(b.weighRows) }},
	})...)
	cases = append(cases, groupedCases(tensorops.KindGroupedMatMul)...)
	return append(cases, groupedCases(tensorops.KindGroupedWeightGrad)...)
}

// eachDispatch records something for the places of several routers and several widths.
func (b *builder) eachDispatch(record func(places tensorops.Tensor, width int, what string)) {
	for i, s := range routes {
		to := b.route(b.single(s[0], s[1]), tensorops.Tensor{}, s[2], tensorops.RouteOpts{})
		width := []int{1, 7, 64, 515, 1025, 33}[i]
		record(to.places, width, fmt.Sprint(s, width))
	}
}

func (b *builder) groupedColSum(counts []int, width int) {
	offsets, rows := offsetsOf(counts)
	sum := b.single(len(counts), width)
	b.GroupedColSum(sum, b.normal(rows, width), b.ints(offsets, len(offsets)), tensorops.Tensor{}, tensorops.Tensor{})
	b.check(sum, "sum of %v×%d", counts, width).summed(rows)
}

// sourceColSum adds the rows of one source. The last rows belong to no expert.
func (b *builder) sourceColSum(counts []int, width, source, sources int) {
	at, used := offsetsOf(counts)
	rows, offsets := used+3, b.ints(at, len(at))
	for _, weights := range []tensorops.Tensor{{}, b.single(rows, 1)} {
		sum := b.single(len(counts)/sources, width)
		b.SourceColSum(sum, b.normal(rows, width), offsets, weights, source, sources)
		b.check(sum, "sum of %v×%d from source %d, weights %v", counts, width, source, weights.Valid()).summed(used)
	}
}

// weighedColSum gives all rows to the second of three experts.
func (b *builder) weighedColSum(places tensorops.Tensor, width int, what string) {
	rows, sum := int32(places.Len()), b.single(3, width)
	b.GroupedColSum(sum, b.normal(int(rows), width), b.ints([]int32{0, 0, rows, rows}, 4), b.single(places.Rows(), places.Cols()), places)
	b.check(sum, "weighed sum of %v", what).summed(int(rows))
}

func (b *builder) weighBias(rows, experts, k, width int) {
	to := b.route(b.single(rows, experts), tensorops.Tensor{}, k, tensorops.RouteOpts{})
	dweights := b.single(rows, k)
	b.WeighBias(dweights, b.normal(rows, width), b.single(experts, width), to.experts)
	b.check(dweights, "dweights of %d×%d, %d of %d experts", rows, width, k, experts).summed(width)
}

func (b *builder) dispatch(places tensorops.Tensor, width int, what string) {
	rows := b.garbage(places.Len(), width)
	b.Dispatch(rows, b.normal(places.Rows(), width), places)
	b.check(rows, "rows of %v", what)
}

func (b *builder) combine(places tensorops.Tensor, width int, what string) {
	n, k := places.Rows(), places.Cols()
	for _, weights := range []tensorops.Tensor{{}, b.single(n, k)} {
		y := b.garbage(n, width)
		b.Combine(y, b.normal(n*k, width), places, weights)
		b.check(y, "y of %v, weights %v", what, weights.Valid()).summed(k)
	}
}

func (b *builder) weighRows(places tensorops.Tensor, width int, what string) {
	n, k := places.Rows(), places.Cols()
	rows, drows, dweights := b.normal(n*k, width), b.normal(n*k, width), b.garbage32(n, k)
	b.WeighRows(rows, drows, dweights, b.single(n, k), places)
	b.check(dweights, "dweights of %v", what).summed(width)
	b.check(rows, "rows of %v", what)
	b.check(drows, "drows of %v", what)
	if n == 0 {
		return
	}
	own, used := b.garbage32(n*k, 1), n*k-1 // the last row belongs to nothing
	b.WeighOwnRows(rows, drows, own, b.single(n*k, 1), b.ints([]int32{0, int32(used)}, 2))
	b.check(own.RowRange(0, used), "dweights of the rows of %v", what).summed(width)
	b.check(rows, "rows of %v weighed again", what)
	b.check(drows, "drows of %v weighed again", what)
}
