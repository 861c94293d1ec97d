package optest

import (
	"math"

	"github.com/troupe-ml/troupe/internal/base/rng"
	"github.com/troupe-ml/troupe/tensorops"
)

// balanceCases are what balances the loads of experts, and gates of rows.
func balanceCases() []Case {
	cases := []Case{
		{"route_count/shapes", tensorops.KindRouteCount, func(b *builder) {
			for _, s := range [][4]int{{0, 3, 2, 2}, {1, 1, 1, 1}, {6, 5, 2, 3}, {37, 16, 3, 1}, {200, 130, 7, 2}} {
				to := b.route(b.single(s[0], s[1]), none, s[2], tensorops.RouteOpts{})
				sums := b.single(s[3], s[1])
				b.RouteCount(sums, to.experts)
				b.check(sums, "counts of %v", s)
			}
			sums := b.single(4)
			b.RouteCount(sums, b.ints([]int32{0, 3, -1, -1, 0, 1, -1, -1}, 4, 2))
			b.check(sums, "counts of half of the rows")
		}},
		// An expert with the mean load stays, and so does one whose load is not a number.
		{"route_bias/signs", tensorops.KindRouteBias, func(b *builder) {
			nan := float32(math.NaN())
			for _, counts := range [][]float32{{3}, {1, 2, 3}, {0, 0, 8, 0}, {5, 5, 5}, {1 << 24, 1<<24 - 1}, {1, nan, 2}} {
				bias := b.single(len(counts))
				b.RouteBias(bias, b.floats(counts, len(counts)), 0.001)
				b.check(bias, "bias after loads %v", counts)
			}
		}},
	}
	cases = append(cases, Case{"balance_loads/shapes", tensorops.KindBalanceLoads, balanceLoads})
	cases = append(cases, eitherType([]Case{
		{"row_gate/shapes", tensorops.KindRowGate, func(b *builder) {
			for _, s := range shapes {
				y := b.garbage(s[0], s[1])
				b.RowGate(y, b.normal(s[0], s[1]), b.single(s[0]))
				b.check(y, "y of %v", s)
			}
			x := b.normal(37, 515)
			b.RowGate(x, x, b.single(37))
			b.check(x, "y = x")
		}},
		{"row_gate_grad/shapes", tensorops.KindRowGateGrad, func(b *builder) {
			for _, s := range shapes {
				dx, dgate := b.garbage(s[0], s[1]), b.garbage32(s[0])
				b.RowGateGrad(dx, dgate, b.normal(s[0], s[1]), b.normal(s[0], s[1]), b.single(s[0]))
				b.check(dx, "dx of %v", s)
				b.check(dgate, "dgate of %v", s).summed(s[1])
			}
			dy, dgate := b.normal(37, 515), b.garbage32(37)
			b.RowGateGrad(dy, dgate, dy, b.normal(37, 515), b.single(37))
			b.check(dy, "dx = dy")
			b.check(dgate, "dgate").summed(515)
		}},
	})...)
	for _, p := range []float64{0, 0.01, 0.5} {
		cases = append(cases, eitherType(jitterCases(p))...)
	}
	return cases
}

// balanceLoads has loads that are not those of the rows. Without any there is no gradient, and no loss.
func balanceLoads(b *builder) {
	for _, s := range routes {
		for _, sigmoid := range []bool{false, true} {
			for _, most := range []int{11, 1} {
				loads := make([]float32, s[1])
				for e := range loads {
					loads[e] = float32((7*e + 3) % most)
				}
				to, dlogits, sum := b.route(b.single(s[0], s[1]), none, s[2], tensorops.RouteOpts{Sigmoid: sigmoid}), b.single(s[0], s[1]),
					b.garbage64(1)
				b.Fill(sum, 1)
				o := tensorops.BalanceOpts{Sigmoid: sigmoid, Weight: 0.3}
				b.BalanceLoads(dlogits, sum, to.scores, to.experts, b.floats(loads, s[1]), o)
				b.check(dlogits, "dlogits of %v, sigmoids %v, loads below %d", s, sigmoid, most).scaled(1)
				b.check(sum, "sum of %v, sigmoids %v, loads below %d", s, sigmoid, most)
				if s[0] > 1 { // a row that is left out
					b.Fill(to.experts.RowRange(1, 2), -1)
				}
				b.BalanceLoads(dlogits, none, to.scores, to.experts, b.floats(loads, s[1]), o)
				b.check(dlogits, "dlogits of %v, sigmoids %v, without a sum", s, sigmoid).scaled(1)
			}
		}
	}
}

func jitterCases(p float64) []Case {
	mask := func(step, first uint64) tensorops.Mask {
		return tensorops.Mask{Key: rng.NewKey(7, 1), Step: step, First: first, P: p}
	}
	return []Case{{dropName("jitter", p, "shapes"), tensorops.KindJitter, func(b *builder) {
		for i, s := range shapes {
			skip := none
			if i%2 > 0 {
				skip = b.normal(s[0], s[1])
			}
			y := b.garbage(s[0], s[1])
			b.Jitter(y, b.normal(s[0], s[1]), skip, mask(3, 0))
			b.check(y, "y of %v", s)
		}
		for _, first := range []uint64{1, 3, 1_000_003, 1<<32 - 2, 1<<40 + 5} {
			y := b.garbage(37, 515)
			b.Jitter(y, b.normal(37, 515), none, mask(1<<32+1, first))
			b.check(y, "y from %d", first)
		}
		x, skip := b.normal(37, 515), b.normal(37, 515)
		b.Jitter(skip, x, skip, mask(3, 2))
		b.check(skip, "y = skip")
		b.Jitter(x, x, none, mask(3, 2))
		b.check(x, "y = x")
	}}}
}
