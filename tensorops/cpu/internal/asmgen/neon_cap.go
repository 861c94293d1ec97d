package main

// neonTangent holds the constants of tanh: see tangent, whose operations these are in the same
// order.
type neonTangent struct{ lo, hi, seed, firstP, firstQ v }

func (n *neon) tangent() neonTangent {
	f, top := exactTangent, len(exactTangent.p)-1
	return neonTangent{lo: n.number(-f.limit), hi: n.number(f.limit), seed: n.bits(tangentSeed), firstP: n.number(f.p[top]),
		firstQ: n.number(f.q[top])}
}

// of replaces x by tanh(x). A NaN stays one.
func (t *neonTangent) of(n *neon, x pair) {
	n.scoped(func() {
		n.three(opFMAX, x, x, spread(t.lo))
		n.three(opFMIN, x, x, spread(t.hi))
		z := n.pair()
		n.mul(z, x, x)
		// horner is a polynomial of z. Of two registers it needs one for each sum.
		horner := func(first v, coefficients []float64) pair {
			p, q, spare := spread(first), n.pair(), n.pair()
			for i := len(coefficients) - 2; i >= 0; i-- {
				n.renew(q, coefficients[i])
				n.fma(q, p, z)
				p, q, spare = q, spare, q
			}
			return p
		}
		p := horner(t.firstP, exactTangent.p)
		n.mul(x, x, p)
		q := horner(t.firstQ, exactTangent.q)
		r, e, f := n.pair(), n.pair(), z
		n.lanes("VSUB", q, spread(t.seed), r)
		for range exactTangent.steps {
			n.renew(e, 1)
			n.fms(e, q, r)
			n.copy(f, e)
			n.fma(f, e, e)
			n.copy(e, r)
			n.fma(e, r, f)
			r, e = e, r
		}
		n.mul(x, x, r)
	})
}

func neonAttnCap(n *neon) {
	n.start("capNEON", "(s []float32, factor, cap float32)", "bounds scores softly.")
	s, count, factor, limit := n.base("s"), n.length("s"), n.scalar("factor"), n.scalar("cap")
	n.constants()
	t := n.tangent()
	n.twice(count, []gp{s}, func(int) {
		x := n.loadAt(s, 0)
		n.mul(x, x, spread(factor))
		t.of(n, x)
		n.mul(x, x, spread(limit))
		n.storeAt(x, s, 0)
	})
	n.end()

	n.start("capSlopeNEON", "(s, slope []float32, factor, cap, scale float32)", "bounds scores softly, and stores the slopes of that.")
	s, slope, count := n.base("s"), n.base("slope"), n.length("s")
	factor, limit = n.scalar("factor"), n.scalar("cap")
	scale := n.scalar("scale")
	n.constants()
	t = n.tangent()
	n.twice(count, []gp{s, slope}, func(int) {
		x := n.loadAt(s, 0)
		n.mul(x, x, spread(factor))
		t.of(n, x)
		f := n.fresh(1)
		n.fms(f, x, x)
		n.mul(f, f, spread(scale))
		n.storeAt(f, slope, 0)
		n.mul(x, x, spread(limit))
		n.storeAt(x, s, 0)
	})
	n.end()
}
