package delta

// solveBlock is the number of positions that are solved for one after another; those before them enter
// through a product.
const solveBlock = 16

// Forward computes h.O and h.State.
func (kn *Kernel) Forward(ws *Workspace, s *Shape, keys *Keys, h *Head) {
	w := newWork(kn, ws, s)
	w.keys, w.h, w.state = keys, h, h.State
	fresh := h.State == nil
	if fresh {
		w.state = ws.take(s.KeyWidth * s.ValueWidth)
		clear(w.state)
	}
	for first := 0; first < s.Positions; first += Chunk {
		n := min(Chunk, s.Positions-first)
		w.loadKeys(first, n, true)
		if n == 1 {
			w.step()
			continue
		}
		w.loadGates()
		w.pairs()
		w.solve(fresh)
		w.output(fresh)
		w.advance(fresh)
		fresh = false
	}
}

// step takes one position through the recurrence.
func (w *work) step() {
	dv, v := w.s.ValueWidth, w.Vec
	at := w.first * w.h.Stride
	w.e[0] = w.h.Gates[at]
	v.Exp(w.e[:1], w.e[:1])
	seen := w.out[:dv]
	clear(seen)
	for i, k := range w.k[:w.s.KeyWidth] {
		s := w.state[i*dv:][:dv]
		v.Scaled(s, s, w.e[0])
		v.ScaledPlus(seen, s, k, seen)
	}
	d := w.d[:dv]
	v.ScaledPlus(d, seen, -1, w.row(w.h.V, w.first, dv))
	v.Scaled(d, d, w.h.Betas[at])
	o := seen
	clear(o)
	for i, k := range w.k[:w.s.KeyWidth] {
		s := w.state[i*dv:][:dv]
		v.ScaledPlus(s, d, k, s)
		v.ScaledPlus(o, s, w.q[i], o)
	}
	w.put(w.h.O, w.first, o)
}

// pairs makes what depends on two positions of the chunk: −L·(k̂·k̂) below the diagonal, of whose products
// with D solve is made.
func (w *work) pairs() {
	n, d := w.n, w.s.KeyWidth
	w.mul(rows(w.kk, n), rows(w.k, d), rows(w.k, d).T(), n, n, d, false)
	w.Vec.Mul(w.h2[:n*n], w.l, w.kk)
	w.Vec.Scaled(w.h2[:n*n], w.h2, -1)
	for i := range n {
		w.h2[i*n+i] = 0
	}
}

// scores makes q̂·k̂ and P.
func (w *work) scores() {
	n, d := w.n, w.s.KeyWidth
	w.mul(rows(w.qk, n), rows(w.q, d), rows(w.k, d).T(), n, n, d, false)
	w.Vec.Mul(w.p[:n*n], w.l, w.qk)
}

// solve makes N and D = β·N of the chunk's values and the state before it; fresh: that is 0.
func (w *work) solve(fresh bool) {
	n, dk, dv := w.n, w.s.KeyWidth, w.s.ValueWidth
	for i := range n {
		copy(w.rest[i*dv:][:dv], w.row(w.h.V, w.first+i, dv))
	}
	if !fresh {
		w.negativeKeys()
		w.mul(rows(w.rest, dv), rows(w.ek, dk), rows(w.state, dv), n, dv, dk, true)
	}
	for b0 := 0; b0 < n; b0 += solveBlock {
		b1 := min(b0+solveBlock, n)
		if b0 > 0 {
			w.mul(rows(w.rest[b0*dv:], dv), rows(w.h2[b0*n:], n), rows(w.d, dv), b1-b0, dv, b0, true)
		}
		for i := b0; i < b1; i++ {
			row := w.rest[i*dv:][:dv]
			for j := b0; j < i; j++ {
				w.Vec.ScaledPlus(row, w.d[j*dv:][:dv], w.h2[i*n+j], row)
			}
			w.Vec.Scaled(w.d[i*dv:][:dv], row, w.beta[i])
		}
	}
}

// negativeKeys makes −E·k̂.
func (w *work) negativeKeys() {
	w.Vec.Scaled(w.factors[:w.n], w.e, -1)
	w.scaleRows(w.ek, w.k, w.factors[:w.n], w.s.KeyWidth)
}

// output makes O = E·(q̂·S) + P·D.
func (w *work) output(fresh bool) {
	n, dk, dv := w.n, w.s.KeyWidth, w.s.ValueWidth
	w.scores()
	if !fresh {
		w.scaleRows(w.eq, w.q, w.e[:n], dk)
		w.mul(rows(w.out, dv), rows(w.eq, dk), rows(w.state, dv), n, dv, dk, false)
	}
	w.mul(rows(w.out, dv), rows(w.p, n), rows(w.d, dv), n, dv, n, !fresh)
	for i := range n {
		w.put(w.h.O, w.first+i, w.out[i*dv:][:dv])
	}
}

// advance makes the state after the chunk: E[C]·S + (L[C]·k̂)ᵀ·D.
func (w *work) advance(fresh bool) {
	n, dk, dv := w.n, w.s.KeyWidth, w.s.ValueWidth
	w.scaleRows(w.fk, w.k, w.last(), dk)
	if !fresh {
		w.Vec.Scaled(w.state, w.state, w.e[n-1])
	}
	w.mul(rows(w.state, dv), rows(w.fk, dk).T(), rows(w.d, dv), dk, dv, n, !fresh)
}
