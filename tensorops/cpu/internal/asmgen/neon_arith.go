package main

func neonVecAdd(n *neon) {
	for operands := 2; operands <= len(operandNames); operands++ {
		signature, doc, suffix := sumOf(operands)
		n.start("add"+suffix+"NEON", signature, doc+".")
		dst, count := n.out("dst"), n.length("dst")
		var x []*stream
		for _, name := range operandNames[:operands] {
			x = append(x, n.in(name))
		}
		n.each(count, append([]*stream{dst}, x...), func(a *access) {
			p := a.load(x[0])
			for _, s := range x[1:] {
				n.add(p, p, a.load(s))
			}
			a.store(p, dst)
		})
		n.end()
	}
}

func neonVecAddPast(n *neon) {
	for operands := 2; operands <= len(operandNames); operands++ {
		signature, doc, suffix := sumOf(operands)
		n.start("add"+suffix+"PastNEON", signature, doc+" past the caches.")
		dst, count := n.base("dst"), n.length("dst")
		var x []gp
		for _, name := range operandNames[:operands] {
			x = append(x, n.base(name))
		}
		n.repeat(count, 8, func() {
			since := len(n.lines)
			p := n.loadAt(x[0], 0)
			for _, s := range x[1:] {
				n.add(p, p, n.loadAt(s, 0))
			}
			n.goOn(32, since, x...)
			n.enc(storePast(p[0], p[1], dst))
			n.ins("ADD", imm(32), dst)
		})
		n.end()
	}
}

func neonVecColSum(n *neon) {
	n.start("colSumNEON", "(sum, x []float32)", "adds four rows of x, each as long as sum, to sum.")
	sum, count := n.inOut("sum"), n.length("sum")
	rows := n.rows(n.base("x"), count, 4)
	n.each(count, append([]*stream{sum}, rows...), func(a *access) {
		s := a.load(sum)
		for _, r := range rows {
			n.add(s, s, a.load(r))
		}
		a.store(s, sum)
	})
	n.end()
}

// rows are rows of n elements, one after the other.
func (n *neon) rows(first, count gp, rows int) []*stream {
	all := []*stream{{at: first, in: true, when: noReg}}
	for len(all) < rows {
		r := n.gp()
		n.ins("ADD", count.String()+"<<2", all[len(all)-1].at, r)
		all = append(all, &stream{at: r, in: true, when: noReg})
	}
	return all
}

func neonVecRoPE(n *neon) {
	n.start("ropeNEON", "(a, b *float32, cos, sin []float32, heads, stride int)",
		"turns the pairs of the heads' elements at a and b, as many as there are cosines.")
	first := []gp{n.integer("a"), n.integer("b"), n.base("cos"), n.base("sin")}
	heads, stride, count, left := n.integer("heads"), n.integer("stride"), n.length("cos"), n.gp()
	streams := make([]*stream, len(first))
	for i := range streams {
		streams[i] = &stream{at: n.gp(), in: true, out: i < 2, when: noReg}
	}
	x, y, cos, sin := streams[0], streams[1], streams[2], streams[3]
	head, done := n.label("head"), n.label("end")
	n.ins("CMP", imm(0), heads)
	n.ins("BLE", done)
	n.mark(head)
	for i, s := range streams {
		n.ins("MOVD", first[i], s.at)
	}
	n.ins("MOVD", count, left)
	n.each(left, streams, func(a *access) {
		p, q, c, s := a.load(x), a.load(y), a.load(cos), a.load(sin)
		u, w := n.pair(), n.pair()
		n.mul(u, q, s)
		n.neg(u, u)
		n.fma(u, c, p)
		n.mul(w, p, s)
		n.fma(w, c, q)
		a.store(u, x)
		a.store(w, y)
	})
	for _, r := range first[:2] {
		n.ins("ADD", stride.String()+"<<2", r, r)
	}
	n.ins("SUBS", imm(1), heads, heads)
	n.ins("BNE", head)
	n.mark(done)
	n.end()
}
