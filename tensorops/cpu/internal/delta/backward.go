package delta

import "github.com/troupe-ml/troupe/tensorops/cpu/internal/gemm"

// gradient is the gradient of a head under way.
type gradient struct {
	*work
	states, rests []float32 // the state before each chunk, and N of all positions
	sumQ, sumK    []float32 // dq̂ and dk̂ of all positions, of the heads of values so far

	do, r, z []float32 // rows of ValueWidth: dO, R and Z
	t        []float32 // rows of KeyWidth
	dot      []float32 // n×n: products of dO or Z with D, then W or U + Uᵀ
	u        []float32
	ds       []float32      // gradient of the state after the chunk
	dlog     [Chunk]float64 // of G
}

// Backward computes keys.DQ and keys.DK, and DV, DGates and DBetas of the heads of values that read
// these keys. The sequences begin with a state of 0.
func (kn *Kernel) Backward(ws *Workspace, s *Shape, keys *Keys, heads []Head) {
	w := newWork(kn, ws, s)
	w.keys = keys
	dk, dv, n := s.KeyWidth, s.ValueWidth, min(Chunk, s.Positions)
	chunks := (s.Positions + Chunk - 1) / Chunk
	g := gradient{work: w, states: ws.take(chunks * dk * dv), rests: ws.take(s.Positions * dv),
		sumQ: ws.take(s.Positions * dk), sumK: ws.take(s.Positions * dk),
		do: ws.take(n * dv), r: ws.take(n * dv), z: ws.take(n * dv), t: ws.take(n * dk), dot: ws.take(n * n), u: ws.take(n * n),
		ds: ws.take(dk * dv),
	}
	clear(g.sumQ)
	clear(g.sumK)
	for i := range heads {
		w.h = &heads[i]
		g.scan(chunks)
		clear(g.ds)
		for c := chunks - 1; c >= 0; c-- {
			g.chunk(c)
		}
	}
	g.normsGrad(keys.Q, keys.DQ, g.sumQ, s.scale())
	g.normsGrad(keys.K, keys.DK, g.sumK, 1)
}

// scan computes the state before each chunk, and N.
func (g *gradient) scan(chunks int) {
	dk, dv := g.s.KeyWidth, g.s.ValueWidth
	for c := range chunks {
		first := c * Chunk
		g.loadKeys(first, min(Chunk, g.s.Positions-first), false)
		g.loadGates()
		g.pairs()
		g.state = g.states[c*dk*dv:][:dk*dv]
		if c == 0 {
			clear(g.state)
		}
		g.solve(c == 0)
		copy(g.rests[first*dv:], g.rest[:g.n*dv])
		if c+1 < chunks {
			after := g.states[(c+1)*dk*dv:][:dk*dv]
			copy(after, g.state)
			g.state = after
			g.advance(c == 0)
		}
	}
}

// chunk takes the gradient through a chunk.
func (g *gradient) chunk(c int) {
	dk, dv, first := g.s.KeyWidth, g.s.ValueWidth, c*Chunk
	g.loadKeys(first, min(Chunk, g.s.Positions-first), true)
	g.loadGates()
	g.pairs()
	g.scores()
	n := g.n
	g.state = g.states[c*dk*dv:][:dk*dv]
	for i := range n {
		copy(g.do[i*dv:][:dv], g.row(g.h.DO, first+i, dv))
	}
	rest := g.rests[first*dv:][:n*dv]
	g.scaleRows(g.d, rest, g.beta[:n], dv)
	g.scaleRows(g.eq, g.q, g.e[:n], dk)
	g.negativeKeys()
	g.scaleRows(g.fk, g.k, g.last(), dk)
	g.mul(rows(g.r, dv), rows(g.p, n).T(), rows(g.do, dv), n, dv, n, false)
	g.mul(rows(g.r, dv), rows(g.fk, dk), rows(g.ds, dv), n, dv, dk, true)
	g.solveBack()
	for i := range n {
		g.put(g.h.DV, first+i, g.z[i*dv:][:dv])
		g.h.DBetas[(first+i)*g.h.Stride] = g.Vec.Dot(g.r[i*dv:][:dv], rest[i*dv:][:dv])
	}
	clear(g.dlog[:])
	g.pairsGrad()
	g.keysGrad()
	if c > 0 {
		g.stateGrad()
	}
	sum := 0.0
	for i := n - 1; i >= 0; i-- {
		sum += g.dlog[i]
		g.h.DGates[(first+i)*g.h.Stride] = float32(sum)
	}
}

// solveBack makes R and Z = β·R of the gradient of D, which is in r.
func (g *gradient) solveBack() {
	n, dv := g.n, g.s.ValueWidth
	for b1 := n; b1 > 0; {
		b0 := (b1 - 1) / solveBlock * solveBlock
		if b1 < n {
			g.mul(rows(g.r[b0*dv:], dv), rows(g.h2[b1*n+b0:], n).T(), rows(g.z[b1*dv:], dv), b1-b0, dv, n-b1, true)
		}
		for i := b1 - 1; i >= b0; i-- {
			row := g.r[i*dv:][:dv]
			for j := i + 1; j < b1; j++ {
				g.Vec.ScaledPlus(row, g.z[j*dv:][:dv], g.h2[j*n+i], row)
			}
			g.Vec.Scaled(g.z[i*dv:][:dv], row, g.beta[i])
		}
		b1 = b0
	}
}

// pairsGrad makes W and U + Uᵀ, and what they add to the gradients of G and of the keys.
func (g *gradient) pairsGrad() {
	n, dk, dv := g.n, g.s.KeyWidth, g.s.ValueWidth
	sumQ, sumK := rows(g.sumQ[g.first*dk:], dk), rows(g.sumK[g.first*dk:], dk)
	// W
	g.mul(rows(g.dot, n), rows(g.do, dv), rows(g.d, dv).T(), n, n, dv, false)
	g.Vec.Mul(g.dot[:n*n], g.dot, g.l)
	g.addPairs(g.dot, g.qk)
	g.mul(sumQ, rows(g.dot, n), rows(g.k, dk), n, dk, n, true)
	g.mul(sumK, rows(g.dot, n).T(), rows(g.q, dk), n, dk, n, true)
	// U
	g.mul(rows(g.u, n), rows(g.z, dv), rows(g.d, dv).T(), n, n, dv, false)
	g.Vec.Mul(g.u[:n*n], g.u, g.l)
	g.Vec.Scaled(g.u[:n*n], g.u, -1)
	for i := range n {
		g.u[i*n+i] = 0
	}
	g.addPairs(g.u, g.kk)
	for i := range n {
		for j := range i {
			g.u[j*n+i] = g.u[i*n+j]
		}
	}
	g.mul(sumK, rows(g.u, n), rows(g.k, dk), n, dk, n, true)
}

// addPairs adds a·b of each pair below the diagonal to the gradient of the first position's G, and
// subtracts it from that of the second.
func (g *gradient) addPairs(a, b []float32) {
	n := g.n
	for i := range n {
		row := 0.0
		for j := range i {
			x := float64(a[i*n+j]) * float64(b[i*n+j])
			row += x
			g.dlog[j] -= x
		}
		g.dlog[i] += row
	}
}

// keysGrad adds what comes from the state before the chunk and from that after it.
func (g *gradient) keysGrad() {
	n, dk, dv := g.n, g.s.KeyWidth, g.s.ValueWidth
	add := func(to, factors, keys []float32, sign float64) {
		for i, f := range factors {
			row, sum := g.t[i*dk:][:dk], to[(g.first+i)*dk:][:dk]
			g.Vec.ScaledPlus(sum, row, f, sum)
			x := float64(g.Vec.Dot(row, keys[i*dk:][:dk]))
			g.dlog[i] += sign * x
			if sign < 0 { // of the state after the chunk
				g.dlog[n-1] += x
			}
		}
	}
	if g.first > 0 { // else the state is 0
		g.mul(rows(g.t, dk), rows(g.do, dv), rows(g.state, dv).T(), n, dk, dv, false)
		add(g.sumQ, g.e[:n], g.eq, 1)
		g.mul(rows(g.t, dk), rows(g.z, dv), rows(g.state, dv).T(), n, dk, dv, false)
		add(g.sumK, g.factors[:n], g.ek, 1) // −E, of negativeKeys
	}
	g.mul(rows(g.t, dk), rows(g.d, dv), rows(g.ds, dv).T(), n, dk, dv, false)
	add(g.sumK, g.last(), g.fk, -1)
}

// stateGrad makes the gradient of the state before the chunk, and adds that of E[C] to the last position's G.
func (g *gradient) stateGrad() {
	n, dk, dv := g.n, g.s.KeyWidth, g.s.ValueWidth
	decay, sum := g.e[n-1], 0.0
	for i := range dk {
		sum += float64(g.Vec.Dot(g.state[i*dv:][:dv], g.ds[i*dv:][:dv]))
	}
	g.dlog[n-1] += float64(float64(decay) * sum)
	g.Vec.Scaled(g.ds, g.ds, decay)
	g.mul(rows(g.ds, dv), rows(g.eq, dk).T(), rows(g.do, dv), dk, dv, n, true)
	g.mul(rows(g.ds, dv), rows(g.ek, dk).T(), rows(g.z, dv), dk, dv, n, true)
}

// normsGrad takes the gradient of normalized rows through their norms, which a factor follows.
func (g *gradient) normsGrad(x, dx gemm.Matrix, sums []float32, factor float64) {
	d := g.s.KeyWidth
	unit := g.t[:d]
	for i := range g.s.Positions {
		row, sum := g.row(x, i, d), sums[i*d:][:d]
		r := g.norm(row)
		g.Vec.Scaled(unit, row, float32(r))
		dot, f := g.Vec.Dot(unit, sum), float32(r*factor)
		g.Vec.Scaled(sum, sum, f)
		g.Vec.ScaledPlus(sum, unit, -f*dot, sum)
		g.put(dx, i, sum)
	}
}
