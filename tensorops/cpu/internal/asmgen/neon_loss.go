package main

// lanes32 are the 32 lanes of a sum over a row, cleared.
func (n *neon) lanes32() []pair {
	sums := make([]pair, 4)
	for i := range sums {
		sums[i] = n.pair()
		n.zero(sums[i][0])
		n.zero(sums[i][1])
	}
	return sums
}

// total combines all lanes of float32 by halves, the last two by pairs; the result is the
// lowest.
func (n *neon) total(lanes []pair, op three, pairs func(d, n v) word) v {
	for h := len(lanes) / 2; h > 0; h /= 2 {
		for i := range h {
			n.three(op, lanes[i], lanes[i], lanes[i+h])
		}
	}
	low, high := lanes[0][0], lanes[0][1]
	n.enc(op.s(low, low, high))
	n.ins("VEXT", imm(8), low.b(), low.b(), high.b())
	n.enc(op.s(low, low, high), pairs(low, low))
	return low
}

func neonVecMax(n *neon) {
	n.start("maxNEON", "(x []float32) float32", "returns the largest element.")
	x, count := n.in("x"), n.length("x")
	n.constants()
	lowest := n.bits(0xff800000)
	top := make([]pair, 4)
	for i := range top {
		top[i] = n.pair()
		n.copy(top[i], spread(lowest))
	}
	n.blocks(count, len(top), &lowest, []*stream{x}, func(i int, a *access) {
		n.three(opFMAXNM, top[i], top[i], a.load(x))
	})
	n.result("FMOVS", 0, n.total(top, opFMAXNM, pairMax))
	n.end()
}

func neonVecSumExp(n *neon) {
	n.start("sumExpNEON", "(x []float32, top float32) float32", "returns the sum of e to the power of x − top.")
	x, count, top := n.in("x"), n.length("x"), n.scalar("top")
	n.constants()
	sum, e := n.lanes32(), n.exponential(expMax)
	lowest := n.bits(0xff800000) // e to its power is 0
	n.blocks(count, len(sum), &lowest, []*stream{x}, func(i int, a *access) {
		n.scoped(func() {
			u := a.load(x)
			n.sub(u, u, spread(top))
			e.of(n, u)
			n.add(sum[i], sum[i], u)
		})
	})
	n.result("FMOVS", 0, n.total(sum, opFADD, pairSum))
	n.end()
}

func neonVecCrossEntropyGrad(n *neon) {
	n.start("crossEntropyGradNEON", "(dst, src []float32, top, rest, scale float32)", "stores scale times e to the power of src − top − rest.")
	dst, src, count := n.out("dst"), n.in("src"), n.length("dst")
	top, rest, scale := n.scalar("top"), n.scalar("rest"), n.scalar("scale")
	n.constants()
	e := n.exponential(expMax)
	n.each(count, []*stream{dst, src}, func(a *access) {
		x := a.load(src)
		n.sub(x, x, spread(top))
		n.sub(x, x, spread(rest))
		e.of(n, x)
		n.mul(x, x, spread(scale))
		a.store(x, dst)
	})
	n.end()
}
