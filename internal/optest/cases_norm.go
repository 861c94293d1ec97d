package optest

import (
	"math"
	"strings"

	"github.com/troupe-ml/troupe/tensorops"
)

const normEps = 1e-5

// normShapes leave out two columns: two numbers that happen to be close make
// any float32 norm imprecise.
var normShapes = [][2]int{{0, 16}, {1, 1}, {1, 129}, {37, 1}, {5, 7}, {9, 3}, {130, 300}, {37, 515}}

// norm is LayerNorm or RMSNorm; the cases are the same.
type norm struct {
	forward, grad, weightGrad tensorops.Kind
	stats                     int // numbers a row
	name                      string

	y      func(b *builder, y, x, gamma, beta, stats tensorops.Tensor)
	dx     func(b *builder, dx, dy, x, gamma, stats, skip tensorops.Tensor)
	dgamma func(b *builder, dgamma, dbeta, dy, x, stats tensorops.Tensor)
}

var layerNorm = norm{
	forward:    tensorops.KindLayerNorm,
	grad:       tensorops.KindLayerNormGrad,
	weightGrad: tensorops.KindLayerNormWeightGrad,
	stats:      2,
	y: func(b *builder, y, x, gamma, beta, stats tensorops.Tensor) {
		b.LayerNorm(y, x, gamma, beta, stats, normEps)
	},
	dx: func(b *builder, dx, dy, x, gamma, stats, skip tensorops.Tensor) {
		b.LayerNormGrad(dx, dy, x, gamma, stats, skip)
	},
	dgamma: func(b *builder, dgamma, dbeta, dy, x, stats tensorops.Tensor) {
		b.LayerNormWeightGrad(dgamma, dbeta, dy, x, stats)
	},
}

var rmsNorm, offsetRMSNorm = rmsNormOf("", 0), rmsNormOf(" and an offset", 1)

func rmsNormOf(name string, offset float64) norm {
	o := tensorops.RMSNormOpts{Eps: normEps, Offset: offset}
	return norm{
		forward:    tensorops.KindRMSNorm,
		grad:       tensorops.KindRMSNormGrad,
		weightGrad: tensorops.KindRMSNormWeightGrad,
		stats:      1,
		name:       name,
		y: func(b *builder, y, x, gamma, _, stats tensorops.Tensor) {
			b.RMSNorm(y, x, gamma, stats, o)
		},
		dx: func(b *builder, dx, dy, x, gamma, stats, skip tensorops.Tensor) {
			b.RMSNormGrad(dx, dy, x, gamma, stats, skip, o)
		},
		dgamma: func(b *builder, dgamma, _, dy, x, stats tensorops.Tensor) {
			b.RMSNormWeightGrad(dgamma, dy, x, stats)
		},
	}
}

var none tensorops.Tensor

func normCases() []Case {
	cases := append(layerNorm.cases(), rmsNorm.cases()...)
	for _, c := range offsetRMSNorm.cases() {
		if c.Kind != tensorops.KindRMSNormWeightGrad || strings.Contains(c.Name, "with that of the rows") { // others don't read it
			cases = append(cases, c)
		}
	}
	return eitherType(append(cases,
		Case{"layer_norm/no beta", tensorops.KindLayerNorm, func(b *builder) {
			y, stats := b.garbage(37, 129), b.garbage32(37, 2)
			b.LayerNorm(y, b.normal(37, 129), b.single(129), none, stats, normEps)
			b.check(y, "y")
		}},
		// The mean is 30 deviations away: its rounding is that of a number 30
		// times as large.
		Case{"layer_norm/far from zero", tensorops.KindLayerNorm, func(b *builder) {
			y, stats := b.garbage(37, 129), b.garbage32(37, 2)
			b.LayerNorm(y, b.spread(30, 1, 37, 129), b.single(129), b.single(129), stats, normEps)
			b.check(y, "y").loosen(8)
			b.check(stats, "stats")
		}},
		Case{"layer_norm_weight_grad/no beta", tensorops.KindLayerNormWeightGrad, func(b *builder) {
			x, stats := layerNorm.normalised(b, 37, 129)
			dgamma := b.single(129)
			b.LayerNormWeightGrad(dgamma, none, b.normal(37, 129), x, stats)
			b.check(dgamma, "dgamma").summed(37)
		}},
	))
}

// normalised runs the forward pass for its stats.
func (m norm) normalised(b *builder, rows, cols int) (x, stats tensorops.Tensor) {
	x, stats = b.normal(rows, cols), b.garbage32(rows, m.stats)
	m.y(b, b.garbage(rows, cols), x, b.single(cols), none, stats)
	return x, stats
}

func (m norm) cases() []Case {
	return []Case{
		{m.forward.String() + "/shapes" + m.name, m.forward, func(b *builder) {
			for _, s := range normShapes {
				y, stats := b.garbage(s[0], s[1]), b.garbage32(s[0], m.stats)
				m.y(b, y, b.normal(s[0], s[1]), b.single(s[1]), b.single(s[1]), stats)
				b.check(y, "y of %v", s)
				b.check(stats, "stats of %v", s)
			}
		}},
		// Without a variance, eps alone divides.
		{m.forward.String() + "/equal numbers" + m.name, m.forward, func(b *builder) {
			x, y, stats := b.garbage(5, 64), b.garbage(5, 64), b.garbage32(5, m.stats)
			b.Fill(x, 0)
			b.Fill(x.RowRange(1, 4), 0.5)
			m.y(b, y, x, b.single(64), b.single(64), stats)
			b.check(y, "y")
			b.check(stats, "stats")
		}},
		// The rows are sums that are made right before: a device may do both at once.
		{m.forward.String() + "/behind a residual" + m.name, m.forward, func(b *builder) {
			for i, s := range append(normShapes, [][2]int{{3, 768}, {5, 1032}, {2, 5003}, {1, 17000}}...) {
				x, skip, y, stats := b.normal(s[0], s[1]), b.normal(s[0], s[1]), b.garbage(s[0], s[1]), b.garbage32(s[0], m.stats)
				mask := tensorops.Mask{Key: b.key(), Step: 3, First: uint64(7 * i), P: 0.3 * float64(i%2)}
				b.Dropout(x, x, skip, mask)
				m.y(b, y, x, b.single(s[1]), b.single(s[1]), stats)
				b.check(x, "sum of %v", s)
				o, of := b.check(y, "y of %v", s), b.check(stats, "stats of %v", s)
				if s[1] == 1 { // nothing remains but rounding, times rstd
					o.scaled(1 / math.Sqrt(normEps))
					of.scaled(1 / normEps)
				}
			}
		}},
		{m.weightGrad.String() + "/with that of the rows" + m.name, m.weightGrad, func(b *builder) {
			for _, s := range append(normShapes, [][2]int{{70, 768}, {3, 4096}, {3, 4104}}...) {
				x, stats := m.normalised(b, s[0], s[1])
				dgamma, dbeta, dy := b.single(s[1]), b.single(s[1]), b.normal(s[0], s[1])
				dx, skip := b.garbage(s[0], s[1]), b.normal(s[0], s[1])
				m.dgamma(b, dgamma, dbeta, dy, x, stats)
				m.dx(b, dx, dy, x, b.single(s[1]), stats, skip)
				b.check(dgamma, "dgamma of %v", s).summed(s[0])
				b.check(dbeta, "dbeta of %v", s).summed(s[0])
				o := b.check(dx, "dx of %v", s).loosen(2)
				if s[1] == 1 {
					o.scaled(1 / math.Sqrt(normEps))
				}
				m.dgamma(b, dgamma, dbeta, dy, x, stats)
				m.dx(b, dy, dy, x, b.single(s[1]), stats, none)
				b.check(dgamma, "dgamma of %v, twice", s).summed(2 * s[0])
			}
		}},
		{m.grad.String() + "/shapes" + m.name, m.grad, func(b *builder) {
			for _, s := range normShapes {
				x, stats := m.normalised(b, s[0], s[1])
				dx := b.garbage(s[0], s[1])
				m.dx(b, dx, b.normal(s[0], s[1]), x, b.single(s[1]), stats, none)
				o := b.check(dx, "dx of %v", s)
				if s[1] == 1 { // nothing remains but rounding, times rstd
					o.scaled(1 / math.Sqrt(normEps))
				}
			}
		}},
		{m.grad.String() + "/skip" + m.name, m.grad, func(b *builder) {
			for _, s := range normShapes {
				x, stats := m.normalised(b, s[0], s[1])
				dx := b.garbage(s[0], s[1])
				m.dx(b, dx, b.normal(s[0], s[1]), x, b.single(s[1]), stats, b.normal(s[0], s[1]))
				o := b.check(dx, "dx of %v", s)
				if s[1] == 1 {
					o.scaled(1 / math.Sqrt(normEps))
				}
			}
		}},
		{m.grad.String() + "/in place" + m.name, m.grad, func(b *builder) {
			x, stats := m.normalised(b, 37, 129)
			gamma, dy, skip := b.single(129), b.normal(37, 129), b.normal(37, 129)
			m.dx(b, skip, dy, x, gamma, stats, skip)
			b.check(skip, "dx = skip")
			m.dx(b, dy, dy, x, gamma, stats, skip)
			b.check(dy, "dx = dy, with skip")
			m.dx(b, dy, dy, x, gamma, stats, none)
			b.check(dy, "dx = dy")
		}},
		{m.weightGrad.String() + "/shapes" + m.name, m.weightGrad, func(b *builder) {
			for _, s := range append(normShapes, [2]int{1000, 17}) {
				x, stats := m.normalised(b, s[0], s[1])
				dgamma, dbeta := b.single(s[1]), b.single(s[1])
				m.dgamma(b, dgamma, dbeta, b.normal(s[0], s[1]), x, stats)
				b.check(dgamma, "dgamma of %v", s).summed(s[0])
				b.check(dbeta, "dbeta of %v", s).summed(s[0])
			}
		}},
	}
}
