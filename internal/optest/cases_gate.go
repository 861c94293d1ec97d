package optest

import (
	"fmt"

	"github.com/troupe-ml/troupe/tensorops"
)

// gates are what Gate does that SwiGLU doesn't.
var gates = []tensorops.GateOpts{
	{Act: tensorops.TanhGELU}, {Act: tensorops.ExactGELU}, {Act: tensorops.ReLU2}, {Act: tensorops.Sigmoid},
	{Act: tensorops.ClampedSwiGLU, Limit: 7, Alpha: 1.702}, {Act: tensorops.ClampedSwiGLU, Limit: 0.5, Alpha: 2},
}

// acts are the activations that Act has an operation of its own for.
var acts = []tensorops.Activation{tensorops.SiLU, tensorops.ExactGELU, tensorops.ReLU2, tensorops.Sigmoid}

func gateCases() []Case {
	var cases []Case
	for _, g := range gates {
		cases = append(cases, gateCasesOf(g)...)
	}
	for _, act := range acts {
		cases = append(cases, actCasesOf(act)...)
	}
	return eitherType(append(append(cases, softCapCases()...), addScaledCases()...))
}

func gateCasesOf(g tensorops.GateOpts) []Case {
	name := func(what, variant string) string {
		if g.Limit > 0 {
			return fmt.Sprintf("%s/%v %g/%s", what, g.Act, g.Limit, variant)
		}
		return fmt.Sprintf("%s/%v/%s", what, g.Act, variant)
	}
	return []Case{
		{name("gate", "shapes"), tensorops.KindGate, func(b *builder) {
			for _, s := range shapes {
				y := b.garbage(s[0], s[1])
				b.Gate(y, b.spread(0, 2, s[0], s[1]), b.spread(0, 2, s[0], s[1]), g)
				b.check(y, "y of %v", s).scaled(1)
			}
		}},
		{name("gate", "tiny and large"), tensorops.KindGate, func(b *builder) {
			for _, deviation := range []float64{1e-6, 1e-2, 30} {
				y := b.garbage(1000)
				b.Gate(y, b.spread(0, deviation, 1000), b.spread(0, 5, 1000), g)
				b.check(y, "y for a deviation of %g", deviation).scaled(1)
			}
		}},
		{name("gate", "in place"), tensorops.KindGate, func(b *builder) {
			gate, up := b.normal(37, 515), b.normal(37, 515)
			b.Gate(gate, gate, up, g)
			b.check(gate, "y = gate").scaled(1)
			gate = b.normal(37, 515)
			b.Gate(up, gate, up, g)
			b.check(up, "y = up").scaled(1)
		}},
		{name("gate_grad", "shapes"), tensorops.KindGateGrad, func(b *builder) {
			for _, s := range shapes {
				dgate, dup := b.garbage(s[0], s[1]), b.garbage(s[0], s[1])
				b.GateGrad(dgate, dup, b.normal(s[0], s[1]), b.spread(0, 2, s[0], s[1]), b.spread(0, 2, s[0], s[1]), g)
				b.check(dgate, "dgate of %v", s).scaled(1)
				b.check(dup, "dup of %v", s).scaled(1)
			}
		}},
		{name("gate_grad", "large"), tensorops.KindGateGrad, func(b *builder) {
			dgate, dup := b.garbage(1000), b.garbage(1000)
			b.GateGrad(dgate, dup, b.normal(1000), b.spread(0, 30, 1000), b.spread(0, 5, 1000), g)
			b.check(dgate, "dgate").scaled(1)
			b.check(dup, "dup").scaled(1)
		}},
		{name("gate_grad", "in place"), tensorops.KindGateGrad, func(b *builder) {
			dgate, dy := b.garbage(37, 515), b.normal(37, 515)
			b.GateGrad(dgate, dy, dy, b.normal(37, 515), b.normal(37, 515), g)
			b.check(dgate, "dgate").scaled(1)
			b.check(dy, "dup = dy").scaled(1)
		}},
	}
}

func actCasesOf(act tensorops.Activation) []Case {
	return []Case{
		{fmt.Sprintf("act/%v/shapes", act), tensorops.KindAct, func(b *builder) {
			for _, s := range shapes {
				y := b.garbage(s[0], s[1])
				b.Act(y, b.spread(0, 2, s[0], s[1]), act)
				b.check(y, "y of %v", s).scaled(1)
			}
			x := b.spread(0, 30, 3001)
			b.Act(x, x, act)
			b.check(x, "y = x").scaled(1)
		}},
		{fmt.Sprintf("act_grad/%v/shapes", act), tensorops.KindActGrad, func(b *builder) {
			for _, s := range shapes {
				dx := b.garbage(s[0], s[1])
				b.ActGrad(dx, b.normal(s[0], s[1]), b.spread(0, 2, s[0], s[1]), act)
				b.check(dx, "dx of %v", s).scaled(1)
			}
			dy := b.normal(3001)
			b.ActGrad(dy, dy, b.spread(0, 30, 3001), act)
			b.check(dy, "dx = dy").scaled(1)
		}},
	}
}

func softCapCases() []Case {
	limits := []float64{0.5, 30, 50}
	return []Case{
		{"soft_cap/shapes", tensorops.KindSoftCap, func(b *builder) {
			for i, s := range shapes {
				y := b.garbage(s[0], s[1])
				b.SoftCap(y, b.spread(0, 40, s[0], s[1]), limits[i%len(limits)])
				b.check(y, "y of %v", s)
			}
			for _, limit := range limits {
				x := b.spread(0, 1, 37, 515)
				b.SoftCap(x, x, limit)
				b.check(x, "y = x with a cap of %g", limit)
			}
		}},
		{"soft_cap_grad/shapes", tensorops.KindSoftCapGrad, func(b *builder) {
			for i, s := range shapes {
				dx := b.garbage(s[0], s[1])
				b.SoftCapGrad(dx, b.normal(s[0], s[1]), b.spread(0, 40, s[0], s[1]), limits[i%len(limits)])
				b.check(dx, "dx of %v", s).scaled(1)
			}
			for _, limit := range limits {
				dy := b.normal(37, 515)
				b.SoftCapGrad(dy, dy, b.spread(0, 1, 37, 515), limit)
				b.check(dy, "dx = dy with a cap of %g", limit).scaled(1)
			}
		}},
	}
}

func addScaledCases() []Case {
	const factor = 0.22
	return []Case{
		{"add_scaled/shapes", tensorops.KindAddScaled, func(b *builder) {
			for _, s := range shapes {
				y, z := b.garbage(s[0], s[1]), b.garbage(s[0], s[1])
				x := b.normal(s[0], s[1])
				b.AddScaled(y, x, b.normal(s[0], s[1]), factor)
				b.check(y, "y of %v", s)
				b.AddScaled(z, x, none, -12)
				b.check(z, "y of %v without a skip", s)
			}
		}},
		{"add_scaled/in place", tensorops.KindAddScaled, func(b *builder) {
			x, skip := b.normal(37, 515), b.normal(37, 515)
			b.AddScaled(skip, x, skip, factor)
			b.check(skip, "y = skip")
			b.AddScaled(x, x, skip, factor)
			b.check(x, "y = x, with skip")
			b.AddScaled(x, x, none, factor)
			b.check(x, "y = x")
		}},
	}
}
