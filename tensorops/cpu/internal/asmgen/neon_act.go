package main

func neonVecGELU(n *neon) {
	n.start("geluNEON", "(y, x []float32)", "stores GELU of x.")
	y, src, count := n.out("y"), n.in("x"), n.length("y")
	n.constants()
	e, one, negB := n.exponential(expMax), n.number(1), n.number(-geluB)
	n.each(count, []*stream{y, src}, func(a *access) {
		x, z := a.load(src), n.pair()
		n.mul(z, x, x)
		u := n.fresh(-geluA)
		n.fma(u, spread(negB), z)
		n.mul(u, u, x)
		e.of(n, u)
		n.add(u, u, spread(one))
		n.div(x, x, u)
		a.store(x, y)
	})
	n.end()
}

func neonVecGELUGrad(n *neon) {
	n.start("geluGradNEON", "(dx, dy, x []float32)", "stores dy times the slope of GELU at x.")
	dx, dy, src, count := n.out("dx"), n.in("dy"), n.in("x"), n.length("dx")
	n.constants()
	e, one, negB, slopeB := n.exponential(logisticMax), n.number(1), n.number(-geluB), n.number(3*geluB)
	n.each(count, []*stream{dx, dy, src}, func(a *access) {
		x, z := a.load(src), n.pair()
		n.mul(z, x, x)
		u := n.fresh(-geluA)
		n.fma(u, spread(negB), z)
		n.mul(u, u, x)
		s := e.logistic(n, u, one)
		n.mul(u, u, s)
		n.mul(u, u, s)
		n.mul(u, u, x)
		slope := n.fresh(geluA)
		n.fma(slope, spread(slopeB), z)
		n.fma(s, u, slope)
		g := a.load(dy)
		n.mul(s, s, g)
		a.store(s, dx)
	})
	n.end()
}

func neonVecSwiGLU(n *neon) {
	n.start("swigluNEON", "(y, gate, up []float32)", "stores gate·σ(gate)·up.")
	y, gate, up, count := n.out("y"), n.in("gate"), n.in("up"), n.length("y")
	n.constants()
	e, one := n.exponential(expMax), n.number(1)
	n.each(count, []*stream{y, gate, up}, func(a *access) {
		g, u := a.load(gate), n.pair()
		n.neg(u, g)
		e.of(n, u)
		n.add(u, u, spread(one))
		n.div(g, g, u)
		n.mul(g, g, a.load(up))
		a.store(g, y)
	})
	n.end()
}

func neonVecSwiGLUGrad(n *neon) {
	n.start("swigluGradNEON", "(dgate, dup, dy, gate, up []float32)", "stores the gradients of both inputs.")
	dgate, dup, dy, gate, up := n.out("dgate"), n.out("dup"), n.in("dy"), n.in("gate"), n.in("up")
	count := n.length("dgate")
	n.constants()
	e, one := n.exponential(logisticMax), n.number(1)
	n.each(count, []*stream{dgate, dup, dy, gate, up}, func(a *access) {
		g, u := a.load(gate), n.pair()
		n.neg(u, g)
		s, d := e.logistic(n, u, one), a.load(dy)
		n.mul(d, d, s)
		n.mul(u, u, s)
		w := n.fresh(1)
		n.fma(w, u, g)
		n.mul(w, w, a.load(up))
		n.mul(w, w, d)
		a.store(w, dgate)
		n.mul(d, d, g)
		a.store(d, dup)
	})
	n.end()
}
