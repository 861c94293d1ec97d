package main

import "fmt"

// lanes16 are the 16 lanes of float64 of a sum over a row, cleared.
func (n *neon) lanes16() []v {
	sums := n.vs(8)
	for _, r := range sums {
		n.zero(r)
	}
	return sums
}

// totalDouble combines all lanes of float64 by halves.
func (n *neon) totalDouble(lanes []v) v {
	for h := len(lanes) / 2; h > 0; h /= 2 {
		for i := range h {
			n.enc(opFADD.d(lanes[i], lanes[i], lanes[i+h]))
		}
	}
	n.enc(pairSumDouble(lanes[0], lanes[0]))
	return lanes[0]
}

// widened are eight numbers in float64.
func (n *neon) widened(p pair) []v {
	d := n.vs(4)
	for i := range d {
		n.enc(widenDouble(d[i], p[i/2], i%2 == 1))
	}
	return d
}

func (r v) d2() string { return fmt.Sprintf("V%d.D2", r) }

func neonVecMoments(n *neon) {
	n.start("momentsNEON", "(x []float32, shift float32) (sum, squares float64)", "returns the sums of x − shift and of its square.")
	x, count, shift, shift64 := n.in("x"), n.length("x"), n.scalar("shift"), n.v()
	n.enc(widenDouble(shift64, shift, false))
	sum, squares := n.lanes16(), n.lanes16()
	n.blocks(count, 2, &shift, []*stream{x}, func(part int, a *access) {
		n.scoped(func() {
			for i, d := range n.widened(a.load(x)) {
				i += 4 * part
				n.enc(opFSUB.d(d, d, shift64), opFADD.d(sum[i], sum[i], d))
				n.ins("VFMLA", d.d2(), d.d2(), squares[i].d2())
			}
		})
	})
	n.result("FMOVD", 0, n.totalDouble(sum))
	n.result("FMOVD", 1, n.totalDouble(squares))
	n.end()
}

func neonVecSquares(n *neon) {
	n.start("squaresNEON", "(x []float32) float64", "returns the sum of the squares.")
	x, count, sum, zero := n.in("x"), n.length("x"), n.lanes16(), n.v()
	n.zero(zero)
	n.blocks(count, 2, &zero, []*stream{x}, func(part int, a *access) {
		n.scoped(func() {
			for i, d := range n.widened(a.load(x)) {
				n.ins("VFMLA", d.d2(), d.d2(), sum[4*part+i].d2())
			}
		})
	})
	n.result("FMOVD", 0, n.totalDouble(sum))
	n.end()
}

func neonVecNormalise(n *neon) {
	n.start("normaliseNEON", "(y, x, gamma []float32, mean, rstd float32)", "stores (x − mean)·rstd·gamma.")
	n.normalise(false)
	n.start("normaliseAddNEON", "(y, x, gamma, beta []float32, mean, rstd float32)", "stores (x − mean)·rstd·gamma + beta.")
	n.normalise(true)
}

func (n *neon) normalise(add bool) {
	y, x, gamma, count := n.out("y"), n.in("x"), n.in("gamma"), n.length("y")
	mean, rstd := n.scalar("mean"), n.scalar("rstd")
	streams := []*stream{y, x, gamma}
	var beta *stream
	if add {
		beta = n.in("beta")
		streams = append(streams, beta)
	}
	n.each(count, streams, func(a *access) {
		r := a.load(x)
		n.sub(r, r, spread(mean))
		n.mul(r, r, spread(rstd))
		g := a.load(gamma)
		if add {
			b := a.load(beta)
			n.fma(b, g, r)
			r = b
		} else {
			n.mul(r, r, g)
		}
		a.store(r, y)
	})
	n.end()
}

func neonVecNormSums(n *neon) {
	n.start("normSumsNEON", "(dy, x, gamma []float32, mean float32) (sum, dot float32)",
		"returns the sums of dy·gamma and of dy·gamma·(x − mean).")
	dy, x, gamma, count, mean := n.in("dy"), n.in("x"), n.in("gamma"), n.length("x"), n.scalar("mean")
	sum, dot, zero := n.lanes32(), n.lanes32(), n.v()
	n.zero(zero)
	n.blocks(count, len(sum), &zero, []*stream{dy, x, gamma}, func(i int, a *access) {
		n.scoped(func() {
			g, d, w := a.load(dy), a.load(x), a.load(gamma)
			n.mul(g, g, w)
			n.sub(d, d, spread(mean))
			n.add(sum[i], sum[i], g)
			n.fma(dot[i], d, g)
		})
	})
	n.result("FMOVS", 0, n.total(sum, opFADD, pairSum))
	n.result("FMOVS", 1, n.total(dot, opFADD, pairSum))
	n.end()
}

func neonVecNormGrad(n *neon) {
	n.start("normGradNEON", "(dx, dy, x, gamma []float32, mean, rstd, a, b float32)", "stores rstd·((dy·gamma − a) − (x − mean)·b).")
	n.normGrad(false)
	n.start("normGradAddNEON", "(dx, dy, x, gamma, skip []float32, mean, rstd, a, b float32)",
		"stores rstd·((dy·gamma − a) − (x − mean)·b) + skip.")
	n.normGrad(true)
}

func (n *neon) normGrad(add bool) {
	dx, dy, x, gamma, count := n.out("dx"), n.in("dy"), n.in("x"), n.in("gamma"), n.length("dx")
	mean, rstd, meanG, slope := n.scalar("mean"), n.scalar("rstd"), n.scalar("a"), n.scalar("b")
	streams := []*stream{dx, dy, x, gamma}
	var skip *stream
	if add {
		skip = n.in("skip")
		streams = append(streams, skip)
	}
	n.each(count, streams, func(a *access) {
		g, d, w := a.load(dy), a.load(x), a.load(gamma)
		n.mul(g, g, w)
		n.sub(g, g, spread(meanG))
		n.sub(d, d, spread(mean))
		n.fms(g, spread(slope), d)
		n.mul(g, g, spread(rstd))
		if add {
			n.add(g, g, a.load(skip))
		}
		a.store(g, dx)
	})
	n.end()
}

func neonVecNormWeightGrad(n *neon) {
	for _, rows := range []int{1, 4} {
		number := map[int]string{1: "One", 4: "Four"}[rows]
		n.start("layerNormWeightGrad"+number+"NEON", "(dgamma, dbeta, dy, x, stats []float32)",
			"adds rows to the gradients of LayerNorm's weights.")
		n.normWeightGrad(rows, true)
		n.start("rmsNormWeightGrad"+number+"NEON", "(dgamma, dy, x, stats []float32)", "adds rows to the gradient of RMSNorm's weights.")
		n.normWeightGrad(rows, false)
	}
}

func (n *neon) normWeightGrad(rows int, layer bool) {
	dgamma, stats, count := n.inOut("dgamma"), n.base("stats"), n.length("dgamma")
	dy, x := n.rows(n.base("dy"), count, rows), n.rows(n.base("x"), count, rows)
	streams := append(append([]*stream{dgamma}, dy...), x...)
	var dbeta *stream
	mean, rstd := make([]v, rows), make([]v, rows)
	number := func() v {
		r := n.v()
		n.ins("VLD1R.P", address(stats, 4), "["+r.s4()+"]")
		return r
	}
	if layer {
		dbeta = n.inOut("dbeta")
		streams = append(streams, dbeta)
	}
	for r := range rows {
		if layer {
			mean[r] = number()
		}
		rstd[r] = number()
	}
	n.each(count, streams, func(a *access) {
		weight := a.load(dgamma)
		var bias pair
		if layer {
			bias = a.load(dbeta)
		}
		for r := range rows {
			n.scoped(func() {
				g, d := a.load(dy[r]), a.load(x[r])
				if layer {
					n.sub(d, d, spread(mean[r]))
					n.add(bias, bias, g)
				}
				n.mul(d, d, spread(rstd[r]))
				n.fma(weight, d, g)
			})
		}
		a.store(weight, dgamma)
		if layer {
			a.store(bias, dbeta)
		}
	})
	n.end()
}
