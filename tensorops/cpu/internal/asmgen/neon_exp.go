package main

import "math"

// neonExp holds the constants of e^x: see exponential, whose operations these are in the
// same order. What a multiply-add adds to is overwritten, so that each coefficient is
// loaded where it is used.
type neonExp struct {
	lo, hi, log2e, magic, ln2hi, ln2lo, first v
}

// exponential prepares e^x, for x up to a limit: what is above is taken for the limit.
func (n *neon) exponential(limit float64) neonExp {
	return neonExp{
		lo: n.number(-87.5), hi: n.number(limit),
		log2e: n.number(math.Log2E), magic: n.number(expMagic),
		ln2hi: n.number(0.693359375), ln2lo: n.number(-2.12194440e-4),
		first: n.number(2 * expCoefficients[len(expCoefficients)-1]),
	}
}

const expMagic = 1.5*(1<<23) + 126

// of replaces x by e^x. A NaN stays one.
func (e *neonExp) of(n *neon, x pair) {
	n.scoped(func() {
		n.three(opFMAX, x, x, spread(e.lo))
		n.three(opFMIN, x, x, spread(e.hi))
		t, k := n.fresh(expMagic), n.pair()
		n.fma(t, spread(e.log2e), x)
		n.sub(k, t, spread(e.magic))
		n.fms(x, spread(e.ln2hi), k)
		n.fms(x, spread(e.ln2lo), k)
		p, q := spread(e.first), k
		spare := n.pair()
		for i := len(expCoefficients) - 2; i >= -2; i-- {
			c := 2.0
			if i >= 0 {
				c = 2 * expCoefficients[i]
			}
			n.renew(q, c)
			n.fma(q, p, x)
			p, q, spare = q, spare, q
		}
		n.shift("VSHL", 23, t, t)
		n.mul(x, p, t)
	})
}

func neonVecExp(n *neon) {
	n.start("expNEON", "(dst, src []float32)", "stores e to the power of src.")
	dst, src, count := n.out("dst"), n.in("src"), n.length("dst")
	n.constants()
	e := n.exponential(expMax)
	n.each(count, []*stream{dst, src}, func(a *access) {
		x := a.load(src)
		e.of(n, x)
		a.store(x, dst)
	})
	n.end()
}

// neonTanh holds the constants of tanh: see hyperbolic.
type neonTanh struct {
	e                        neonExp
	sign, one, border, first v
}

func (n *neon) hyperbolic() neonTanh {
	return neonTanh{n.exponential(expMax), n.bits(1 << 31), n.number(1), n.number(0.55), n.number(tanhCoefficients[4])}
}

// tanh is a new pair with tanh(x). It changes x.
func (h *neonTanh) tanh(n *neon, x pair) pair {
	z := n.pair()
	n.comment("The first form.")
	n.mul(z, x, x)
	p, q := spread(h.first), n.pair()
	spare := n.pair()
	for i := 3; i >= 0; i-- {
		n.renew(q, tanhCoefficients[i])
		n.fma(q, p, z)
		p, q, spare = q, spare, q
	}
	n.mul(z, x, z)
	n.copy(q, x)
	n.fma(q, z, p)
	p = q
	n.comment("The second form.")
	s, u := n.pair(), n.pair()
	n.logic("VAND", spread(h.sign), x, s)
	n.logic("VEOR", s, x, x)
	n.add(u, x, x)
	h.e.of(n, u)
	n.add(u, u, spread(h.one))
	w, r := n.fresh(2), n.fresh(1)
	n.div(w, w, u)
	n.sub(r, r, w)
	n.logic("VORR", s, r, r)
	n.comment("The first where |x| < 0.55.")
	n.three(opFCMGT, x, spread(h.border), x)
	n.logic("VBSL", r, p, x)
	return x
}

func neonVecTanh(n *neon) {
	n.start("tanhNEON", "(dst, src []float32)", "stores the hyperbolic tangent of src.")
	dst, src, count := n.out("dst"), n.in("src"), n.length("dst")
	n.constants()
	h := n.hyperbolic()
	n.each(count, []*stream{dst, src}, func(a *access) {
		a.store(h.tanh(n, a.load(src)), dst)
	})
	n.end()
}

// logistic replaces u by e^u and returns 1/(1 + e^u).
func (e *neonExp) logistic(n *neon, u pair, one v) pair {
	e.of(n, u)
	s := n.pair()
	n.add(s, u, spread(one))
	n.div(s, spread(one), s)
	return s
}
