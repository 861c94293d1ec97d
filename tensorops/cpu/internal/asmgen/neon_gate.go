package main

import "math"

// neonGate is gated for arm64: emit's result changes g, and takes new registers for f(g) and f′(g).
type neonGate struct {
	name, doc string
	emit      func(n *neon, slope bool) func(g pair) (v, d pair)
}

// neonGates are the functions of gates. The clamped one is not among them.
func neonGates() []neonGate {
	of := map[string]func(n *neon, slope bool) func(g pair) (v, d pair){
		"GELU": neonGateGELU, "ExactGELU": neonGateExactGELU, "ReLU2": neonGateReLU2, "Sigmoid": neonGateSigmoid,
	}
	var all []neonGate
	for _, f := range gates() {
		all = append(all, neonGate{f.name, f.doc, of[f.name]})
	}
	return all
}

func neonVecGate(n *neon) {
	for _, f := range neonGates() {
		n.start("gate"+f.name+"NEON", "(y, gate, up []float32)", "stores "+f.doc+" of gate, times up.")
		y, gate, up, count := n.out("y"), n.in("gate"), n.in("up"), n.length("y")
		n.constants()
		of := f.emit(n, false)
		n.each(count, []*stream{y, gate, up}, func(a *access) {
			v, _ := of(a.load(gate))
			n.mul(v, v, a.load(up))
			a.store(v, y)
		})
		n.end()
	}
	n.clampedGate()
}

func neonVecGateGrad(n *neon) {
	for _, f := range neonGates() {
		n.start("gate"+f.name+"GradNEON", "(dgate, dup, dy, gate, up []float32)", "stores the gradients of both inputs.")
		dgate, dup, dy, gate, up := n.out("dgate"), n.out("dup"), n.in("dy"), n.in("gate"), n.in("up")
		count := n.length("dgate")
		n.constants()
		of := f.emit(n, true)
		n.each(count, []*stream{dgate, dup, dy, gate, up}, func(a *access) {
			v, d := of(a.load(gate))
			w := a.load(dy)
			n.mul(v, v, w)
			n.mul(w, w, a.load(up))
			n.mul(d, d, w)
			a.store(d, dgate)
			a.store(v, dup)
		})
		n.end()
	}
	n.clampedGateGrad()
}

func neonGateGELU(n *neon, slope bool) func(g pair) (v, d pair) {
	limit := float64(expMax)
	if slope {
		limit = logisticMax
	}
	e, one, negB, slopeB := n.exponential(limit), n.number(1), n.number(-geluB), n.number(3*geluB)
	return func(x pair) (v, d pair) {
		z := n.pair()
		n.mul(z, x, x)
		u := n.fresh(-geluA)
		n.fma(u, spread(negB), z)
		n.mul(u, u, x)
		if !slope {
			e.of(n, u)
			n.add(u, u, spread(one))
			n.div(x, x, u)
			return x, x
		}
		s := e.logistic(n, u, one)
		n.mul(u, u, s)
		n.mul(u, u, s)
		n.mul(u, u, x)
		n.mul(x, x, s)
		w := n.fresh(geluA)
		n.fma(w, spread(slopeB), z)
		n.fma(s, u, w)
		return x, s
	}
}

func neonGateExactGELU(n *neon, slope bool) func(g pair) (v, d pair) {
	e, one := n.exponential(expMax), n.number(1)
	magnitude, minusHalf, p := n.bits(1<<31-1), n.number(-0.5), n.number(normalP)
	zero := n.v()
	n.zero(zero)
	return func(x pair) (v, d pair) {
		w, t := n.pair(), n.pair()
		n.mul(w, x, x)
		n.mul(w, w, spread(minusHalf))
		e.of(n, w)
		n.logic("VAND", spread(magnitude), x, t)
		q := n.fresh(1)
		n.fma(q, spread(p), t)
		n.div(t, spread(one), q)
		last := len(normalCoefficients) - 1
		n.renew(q, normalCoefficients[last])
		r := n.pair()
		for i := last - 1; i >= 0; i-- {
			n.renew(r, normalCoefficients[i])
			n.fma(r, q, t)
			q, r = r, q
		}
		n.mul(q, q, t)
		n.mul(q, q, w)
		n.comment("Above 0 it is 1 − q.")
		n.sub(r, spread(one), q)
		n.three(opFCMGT, t, spread(zero), x)
		n.logic("VBSL", r, q, t)
		if slope {
			n.mul(w, w, x)
			n.mul(x, x, t)
			d = t
			n.renew(q, 1/math.Sqrt(2*math.Pi))
			n.fma(d, q, w)
			return x, d
		}
		n.mul(x, x, t)
		return x, x
	}
}

func neonGateReLU2(n *neon, slope bool) func(g pair) (v, d pair) {
	zero := n.v()
	n.zero(zero)
	return func(x pair) (v, d pair) {
		n.three(opFMAX, x, x, spread(zero))
		if slope {
			d = n.pair()
			n.add(d, x, x)
		}
		n.mul(x, x, x)
		return x, d
	}
}

func neonGateSigmoid(n *neon, slope bool) func(g pair) (v, d pair) {
	e, one := n.exponential(logisticMax), n.number(1)
	return func(x pair) (v, d pair) {
		n.neg(x, x)
		v = e.logistic(n, x, one)
		if slope {
			n.mul(x, x, v)
			n.mul(x, x, v)
		}
		return v, x
	}
}

// neonClamped are the numbers of the clamped SwiGLU.
type neonClamped struct{ low, high, alpha v }

func (n *neon) clamped() neonClamped {
	c := neonClamped{n.v(), n.scalar("limit"), n.scalar("alpha")}
	n.enc(opFNEG.s(c.low, c.high))
	return c
}

// within puts up into ±limit, plus one.
func (c neonClamped) within(n *neon, up pair, one v) {
	n.three(opFMAX, up, up, spread(c.low))
	n.three(opFMIN, up, up, spread(c.high))
	n.add(up, up, spread(one))
}

func (n *neon) clampedGate() {
	n.start("gateClampedNEON", "(y, gate, up []float32, limit, alpha float32)", "stores the clamped SwiGLU.")
	y, gate, up, count := n.out("y"), n.in("gate"), n.in("up"), n.length("y")
	n.constants()
	c, e, one := n.clamped(), n.exponential(expMax), n.number(1)
	n.each(count, []*stream{y, gate, up}, func(a *access) {
		g, t := a.load(gate), n.pair()
		n.three(opFMIN, g, g, spread(c.high))
		n.mul(t, g, spread(c.alpha))
		n.neg(t, t)
		e.of(n, t)
		n.add(t, t, spread(one))
		n.div(g, g, t)
		u := a.load(up)
		c.within(n, u, one)
		n.mul(g, g, u)
		a.store(g, y)
	})
	n.end()
}

func (n *neon) clampedGateGrad() {
	n.start("gateClampedGradNEON", "(dgate, dup, dy, gate, up []float32, limit, alpha float32)", "stores the gradients of both inputs.")
	dgate, dup, dy, gate, up := n.out("dgate"), n.out("dup"), n.in("dy"), n.in("gate"), n.in("up")
	count := n.length("dgate")
	n.constants()
	c, e, one, magnitude, zero := n.clamped(), n.exponential(logisticMax), n.number(1), n.bits(1<<31-1), n.v()
	n.zero(zero)
	n.each(count, []*stream{dgate, dup, dy, gate, up}, func(a *access) {
		x, t, g := a.load(gate), n.pair(), n.pair()
		n.three(opFMIN, g, x, spread(c.high))
		n.mul(t, g, spread(c.alpha))
		n.neg(t, t)
		s, w := e.logistic(n, t, one), a.load(dy)
		n.mul(t, t, s)
		n.mul(t, t, g)
		d := n.fresh(1)
		n.fma(d, t, spread(c.alpha))
		n.mul(d, d, s)
		n.mul(d, d, w)
		n.mul(g, g, s)
		n.mul(g, g, w)
		u := a.load(up)
		n.logic("VAND", spread(magnitude), u, w)
		c.within(n, u, one)
		n.mul(d, d, u)
		n.three(opFCMGT, x, x, spread(c.high))
		n.logic("VBSL", d, spread(zero), x)
		n.three(opFCMGT, w, w, spread(c.high))
		n.logic("VBSL", g, spread(zero), w)
		a.store(x, dgate)
		a.store(w, dup)
	})
	n.end()
}

func neonVecSoftCap(n *neon) {
	n.start("softCapNEON", "(y, x []float32, limit, inverse float32)", "stores limit·tanh(x·inverse).")
	y, src, count, limit, inverse := n.out("y"), n.in("x"), n.length("y"), n.scalar("limit"), n.scalar("inverse")
	n.constants()
	h := n.hyperbolic()
	n.each(count, []*stream{y, src}, func(a *access) {
		x := a.load(src)
		n.mul(x, x, spread(inverse))
		v := h.tanh(n, x)
		n.mul(v, v, spread(limit))
		a.store(v, y)
	})
	n.end()
	n.start("softCapGradNEON", "(dx, dy, x []float32, inverse float32)", "stores dy·(1 − tanh²(x·inverse)).")
	dx, dy := n.out("dx"), n.in("dy")
	src, count, inverse = n.in("x"), n.length("dx"), n.scalar("inverse")
	n.constants()
	h = n.hyperbolic()
	n.each(count, []*stream{dx, dy, src}, func(a *access) {
		x := a.load(src)
		n.mul(x, x, spread(inverse))
		v := h.tanh(n, x)
		d := n.fresh(1)
		n.fms(d, v, v)
		n.mul(d, d, a.load(dy))
		a.store(d, dx)
	})
	n.end()
}
