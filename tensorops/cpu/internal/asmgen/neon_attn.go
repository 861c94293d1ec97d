package main

// The loops over scores: see attnKernels. A row has 16 numbers, two pairs.

// twice goes along rows of the given addresses, a pair after the other.
func (n *neon) twice(count gp, bases []gp, body func(i int)) {
	n.repeat(count, 16, func() {
		for i := range 2 {
			n.scoped(func() {
				since := len(n.lines)
				body(i)
				n.goOn(32, since, bases...)
			})
		}
	})
}

func neonAttnMax(n *neon) {
	n.start("maxNEON", "(top, s []float32, scale float32)", "raises top to the largest scaled score of each column.")
	top, s, count, scale := n.base("top"), n.base("s"), n.length("s"), n.scalar("scale")
	t := [2]pair{n.loadAt(top, 0), n.loadAt(top, 32)}
	n.twice(count, []gp{s}, func(i int) {
		x := n.loadAt(s, 0)
		n.mul(x, x, spread(scale))
		n.three(opFMAX, t[i], t[i], x)
	})
	n.storeAt(t[0], top, 0)
	n.storeAt(t[1], top, 32)
	n.end()
}

func neonAttnExp(n *neon) {
	n.start("expNEON", "(s, top, sum []float32, scale float32)", "turns scores into unnormalised probabilities, and sums them up.")
	s, top, sum, count, scale := n.base("s"), n.base("top"), n.base("sum"), n.length("s"), n.scalar("scale")
	n.constants()
	e := n.exponential(expMax)
	// What is subtracted is added with its sign turned.
	low := [2]pair{n.loadAt(top, 0), n.loadAt(top, 32)}
	total := [2]pair{n.loadAt(sum, 0), n.loadAt(sum, 32)}
	n.neg(low[0], low[0])
	n.neg(low[1], low[1])
	n.twice(count, []gp{s}, func(i int) {
		x, y := n.loadAt(s, 0), n.pair()
		n.copy(y, low[i])
		n.fma(y, spread(scale), x)
		e.of(n, y)
		n.add(total[i], total[i], y)
		n.storeAt(y, s, 0)
	})
	n.storeAt(total[0], sum, 0)
	n.storeAt(total[1], sum, 32)
	n.end()
}

func neonAttnScale(n *neon) {
	n.start("scaleNEON", "(s, f []float32)", "multiplies each column by its factor.")
	s, f, count := n.base("s"), n.base("f"), n.length("s")
	factor := [2]pair{n.loadAt(f, 0), n.loadAt(f, 32)}
	n.twice(count, []gp{s}, func(i int) {
		x := n.loadAt(s, 0)
		n.mul(x, x, factor[i])
		n.storeAt(x, s, 0)
	})
	n.end()
}

func neonAttnGrad(n *neon) {
	n.start("gradNEON", "(p, d, lse, delta []float32, scale float32)",
		"turns scores into probabilities, and the probabilities' gradient into the scores'.")
	p, d, lse, delta, count := n.base("p"), n.base("d"), n.base("lse"), n.base("delta"), n.length("p")
	scale := n.scalar("scale")
	n.constants()
	e, l, dl := n.exponential(expMax), n.v(), n.v()
	n.twice(count, []gp{p, d}, func(i int) {
		if i == 0 {
			n.ins("VLD1R.P", address(lse, 4), "["+l.s4()+"]")
			n.ins("VLD1R.P", address(delta, 4), "["+dl.s4()+"]")
			n.enc(opFNEG.s(l, l))
		}
		x, y := n.loadAt(p, 0), n.pair()
		n.copy(y, spread(l))
		n.fma(y, spread(scale), x)
		e.of(n, y)
		n.storeAt(y, p, 0)
		g := n.loadAt(d, 0)
		n.sub(g, g, spread(dl))
		n.mul(g, g, y)
		n.mul(g, g, spread(scale))
		n.storeAt(g, d, 0)
	})
	n.end()
}

func neonAttnMul(n *neon) {
	n.start("mulNEON", "(s, m []float32)", "multiplies by a mask.")
	s, m, count := n.base("s"), n.base("m"), n.length("s")
	n.twice(count, []gp{s, m}, func(int) {
		x, y := n.loadAt(s, 0), n.loadAt(m, 0)
		n.mul(x, x, y)
		n.storeAt(x, s, 0)
	})
	n.end()
}
