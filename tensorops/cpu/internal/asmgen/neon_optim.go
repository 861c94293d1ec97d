package main

func neonVecAdamW(n *neon) {
	n.start("adamWNEON", "(w, m, v, g []float32, b1, nb1, b2, nb2, keep, rate, root, eps, scale float32, clear bool)", "is one step of AdamW.")
	w, m, v2, g, count := n.inOut("w"), n.inOut("m"), n.inOut("v"), n.inOut("g"), n.length("w")
	b1, nb1, b2, nb2 := n.scalar("b1"), n.scalar("nb1"), n.scalar("b2"), n.scalar("nb2")
	keep, rate, root, eps, scale := n.scalar("keep"), n.scalar("rate"), n.scalar("root"), n.scalar("eps"), n.scalar("scale")
	n.enc(opFNEG.s(rate, rate)) // what is subtracted is added
	zero := n.v()
	n.zero(zero)
	g.when = n.gp()
	n.ins("MOVBU", component(n.param("clear")), g.when)
	n.each(count, []*stream{w, m, v2, g}, func(a *access) {
		gi, t, u, d := a.load(g), n.pair(), n.pair(), n.pair()
		n.mul(gi, gi, spread(scale))
		n.mul(t, gi, spread(nb1))
		n.fma(t, a.load(m), spread(b1))
		a.store(t, m)
		n.mul(u, gi, spread(nb2))
		n.mul(u, u, gi)
		n.fma(u, a.load(v2), spread(b2))
		a.store(u, v2)
		n.sqrt(u, u)
		n.copy(d, spread(eps))
		n.fma(d, u, spread(root))
		n.mul(t, t, spread(rate))
		n.div(t, t, d)
		n.fma(t, a.load(w), spread(keep))
		a.store(t, w)
		kept := n.label("kept")
		n.ins("CBZ", g.when, kept)
		a.store(spread(zero), g)
		n.mark(kept)
	})
	n.end()
}

func neonVecSGD(n *neon) {
	n.start("sgdNEON", "(w, g []float32, rate, decay, scale float32)", "is one step of SGD.")
	n.sgd(false)
	n.start("sgdMomentumNEON", "(w, m, g []float32, rate, momentum, decay, scale float32)", "is one step of SGD with momentum.")
	n.sgd(true)
}

func (n *neon) sgd(momentum bool) {
	w, g, count := n.inOut("w"), n.in("g"), n.length("w")
	rate, decay, scale := n.scalar("rate"), n.scalar("decay"), n.scalar("scale")
	streams := []*stream{w, g}
	var m *stream
	var beta v
	if momentum {
		m, beta = n.inOut("m"), n.scalar("momentum")
		streams = append(streams, m)
	}
	n.each(count, streams, func(a *access) {
		wi, d := a.load(w), a.load(g)
		n.mul(d, d, spread(scale))
		n.fma(d, wi, spread(decay))
		if momentum {
			n.fma(d, a.load(m), spread(beta))
			a.store(d, m)
		}
		n.fms(wi, spread(rate), d)
		a.store(wi, w)
	})
	n.end()
}

// rounding holds what rounds float32 to bfloat16: see bf16Doc.
type rounding struct{ one, half, quiet, upper v }

func (n *neon) rounding() rounding {
	return rounding{n.bits(1), n.bits(0x7fff), n.bits(0x00400000), n.bits(0xffff0000)}
}

// of replaces x by itself rounded; its lower half is not cleared.
func (r *rounding) of(n *neon, x pair) {
	n.scoped(func() {
		number, quiet, u := n.pair(), n.pair(), n.pair()
		n.three(opFCMEQ, number, x, x)
		n.logic("VORR", x, spread(r.quiet), quiet)
		n.shift("VUSHR", 16, x, u)
		n.logic("VAND", spread(r.one), u, u)
		n.lanes("VADD", x, spread(r.half), x)
		n.lanes("VADD", x, u, x)
		n.logic("VBIF", number, quiet, x)
	})
}

func neonVecBF16(n *neon) {
	n.start("toBF16NEON", "(dst []uint16, src []float32)", "rounds to bfloat16. The length is a multiple of 32.")
	n.whole(4, 2, true, func(r *rounding, dst, src gp, at int) {
		x, h := n.loadAt(src, 4*at), n.pair()
		r.of(n, x)
		n.enc(upperHalves(h[0], x[0], false), upperHalves(h[0], x[1], true))
		n.memory("FMOVQ", dst, 2*at, false, h[0])
	})
	n.start("fromBF16NEON", "(dst []float32, src []uint16)", "widens bfloat16. The length is a multiple of 32.")
	n.whole(2, 4, false, func(_ *rounding, dst, src gp, at int) {
		h, x := n.v(), n.pair()
		n.memory("FMOVQ", src, 2*at, true, h)
		n.enc(shiftWiden(x[0], h, false), shiftWiden(x[1], h, true))
		n.storeAt(x, dst, 4*at)
	})
	n.start("roundBF16NEON", "(dst, src []float32)", "rounds to what bfloat16 can hold. The length is a multiple of 32.")
	n.whole(4, 4, true, func(r *rounding, dst, src gp, at int) {
		x := n.loadAt(src, 4*at)
		r.of(n, x)
		n.logic("VAND", spread(r.upper), x, x)
		n.storeAt(x, dst, 4*at)
	})
}

// whole loops over 32 elements at a time, of from and to bytes each; body does eight of
// them.
func (n *neon) whole(from, to int, rounds bool, body func(r *rounding, dst, src gp, at int)) {
	dst, src, count := n.base("dst"), n.base("src"), n.length("dst")
	var r rounding
	if rounds {
		n.constants()
		r = n.rounding()
	}
	n.steps(count, 8, []gp{dst, src}, []int{to, from}, func(at int) { body(&r, dst, src, at) })
	n.end()
}

// steps loops over 32 elements at a time of operands, whose elements have so many bytes; body does some of them, from one on. It moves
// the operands on.
func (n *neon) steps(count gp, some int, operands []gp, bytes []int, body func(at int)) {
	const step = 32
	done := n.label("done")
	n.ins("CBZ", count, done)
	n.repeat(count, step, func() {
		for at := 0; at < step; at += some {
			n.scoped(func() { body(at) })
		}
		for i, base := range operands {
			n.ins("ADD", imm(step*bytes[i]), base)
		}
	})
	n.mark(done)
}
