package attn

import "github.com/troupe-ml/troupe/tensorops/cpu/internal/gemm"

// Backward computes each head's DQ, and kv's DK and DV, to which the heads add in
// the order given.
func (kn *Kernel) Backward(ws *Workspace, s *Shape, heads []Head, kv *Keys) {
	g := kn.multiplier()
	nr, d := kn.Gemm.NR, s.Dim
	strips, keys, queries := ceil(s.Keys, nr), min(maxDepth, s.Keys), min(maxDepth, s.Queries)
	work := ws.get()
	b := backward{Kernel: kn, product: g, s: s, ws: ws}
	b.kt, b.vt, b.k = work.take(g.LenB(d, s.Keys)), work.take(g.LenB(d, s.Keys)), work.take(g.LenB(s.Keys, d))
	b.dkt, b.dvt = work.take(strips*d*nr), work.take(strips*d*nr)
	b.q, b.do = work.take(g.LenA(queries, d)), work.take(g.LenA(queries, d))
	b.qt, b.dot = work.take(g.LenA(d, queries)), work.take(g.LenA(d, queries))
	lenP := max(queries*nr, g.LenB(queries, nr))
	b.p, b.ds, b.packed = work.take(lenP), work.take(lenP), work.take(g.LenA(queries, keys))
	b.lse, b.delta, b.dq, b.tmp = work.take(queries), work.take(queries), work.take(queries*d), work.take(max(nr, 2)*d)
	if s.Cap != 0 {
		b.slope = work.take(queries * nr)
	}
	if s.Mask != nil {
		b.mask = work.take(queries * nr)
	}

	k := ws.gathered(kv.K, s.Keys, d, 0)
	g.PackB(b.kt, k.T(), d, s.Keys)
	g.PackB(b.vt, kv.V.T(), d, s.Keys)
	for k0 := 0; k0 < s.Keys; k0 += maxDepth {
		g.PackB(b.k[g.LenB(k0, d):], k.At(k0, 0), min(maxDepth, s.Keys-k0), d)
	}
	clear(b.dkt)
	clear(b.dvt)
	if s.Starts != nil {
		b.findFirsts()
	}
	for i := range heads {
		b.h = &heads[i]
		for i0 := 0; i0 < s.Queries; i0 += maxDepth {
			b.block(i0, min(i0+maxDepth, s.Queries))
		}
	}
	for j := range strips {
		n := min(nr, s.Keys-j*nr)
		b.store(kv.DK, j*nr, b.dkt[j*d*nr:], d, n, b.tmp)
		b.store(kv.DV, j*nr, b.dvt[j*d*nr:], d, n, b.tmp)
	}
}

// backward is the state of one group of heads.
type backward struct {
	*Kernel
	product
	ws *Workspace
	s  *Shape
	h  *Head

	kt, vt, k      []float32 // packed: kᵀ and vᵀ as B, k as B in blocks of keys
	q, do, qt, dot []float32 // of a block of queries, packed: q and do, and their transposes, as A
	dkt, dvt       []float32 // gradients, [strips of keys][dim][nr]
	p, ds, mask    []float32 // [queries][nr]
	packed         []float32 // ds of a block of queries and keys, as A
	lse            []float32 // of each query of the block, 0 of one that sees no key anywhere
	delta          []float32 // do·o of each query of the block
	slope          []float32 // [queries][nr], of the soft cap
	dq             []float32 // of the block, where DQ is bfloat16
	firsts         []int     // if there are starts, the first key that each strip of queries sees
	tmp            []float32 // rows in the other type or the other way
}

// block computes DQ of the queries i0 to i1, and adds what they contribute to the gradients of
// the keys.
func (b *backward) block(i0, i1 int) {
	s, h, d, n := b.s, b.h, b.s.Dim, i1-i0
	q, do := b.ws.gathered(h.Q.At(i0, 0), n, d, 0), b.ws.gathered(h.DO.At(i0, 0), n, d, 1)
	b.PackA(b.q, q, n, d)
	b.PackA(b.do, do, n, d)
	b.PackA(b.qt, q.T(), d, n)
	b.PackA(b.dot, do.T(), d, n)
	b.Products(b.delta[:n], do, h.O.At(i0, 0), d, b.tmp)
	for i, lse := range h.LSE[i0:i1] {
		if b.lse[i] = lse; lse == minusInf {
			b.lse[i] = 0 // every key is hidden from it, and −∞ less −∞ is not a number
		}
	}
	dq := h.DQ.At(i0, 0)
	if dq.Half != nil {
		dq = gemm.Matrix{Data: b.dq, Row: d, Col: 1}
	}
	from := s.firstBlock(i0, i1)
	for k0 := from; k0 < s.end(i1); k0 += maxDepth {
		k1 := min(k0+maxDepth, s.Keys)
		for j := k0; j < k1; j += b.Gemm.NR {
			b.strip(i0, i1, j, k0, k1)
		}
		b.queries(dq, i0, i1, k0, k1, k0 > from)
	}
	if h.DQ.Half != nil {
		b.round(h.DQ, i0, b.dq, d, n)
	}
}

// strip adds to the gradients of the strip of keys from j on, of the block k0 to
// k1, what the queries i0 to i1 contribute, and packs their dS for queries.
func (b *backward) strip(i0, i1, j, k0, k1 int) {
	s, d, nr := b.s, b.s.Dim, b.Gemm.NR
	mr, _ := b.Strips()
	keys := min(nr, k1-j)
	first := max(i0, floor(max(0, j-s.Offset), mr)) // in whole strips of queries
	rows := min(i1, b.lastOf(first, min(i1, ceil(s.last(j+keys-1), mr)*mr), j+keys)) - first
	if rows <= 0 {
		return
	}
	p, ds := b.p[:rows*nr], b.ds[:rows*nr]
	b.Block(gemm.Matrix{Data: p, Row: nr, Col: 1}, rows, nr, d, b.q[b.LenA(first-i0, d):], b.kt[b.LenB(d, j):], false)
	b.Block(gemm.Matrix{Data: ds, Row: nr, Col: 1}, rows, nr, d, b.do[b.LenA(first-i0, d):], b.vt[b.LenB(d, j):], false)
	if s.Cap != 0 {
		b.capSlope(p, b.slope, s.Scale/s.Cap, s.Cap, s.Scale)
	}
	for r := range rows { // queries that don't see all of these keys
		seen := first + r + s.Offset + 1 - j
		if seen >= nr {
			break
		}
		hidden := p[r*nr:][max(0, seen):nr]
		for i := range hidden {
			hidden[i] = minusInf
		}
	}
	if s.hides() {
		for r := range rows { // queries whose windows or documents begin after some of these keys
			hidden := p[r*nr:][:min(nr, max(0, s.first(first+r)-j))]
			for i := range hidden {
				hidden[i] = minusInf
			}
		}
	}
	if s.Mask != nil {
		for r := range rows {
			s.Mask(b.mask[r*nr:][:nr], b.h.Index, first+r, j)
		}
		b.mul(ds, b.mask[:rows*nr])
	}
	b.grad(p, ds, b.lse[first-i0:], b.delta[first-i0:], s.factor())
	if s.Cap != 0 {
		b.mul(ds, b.slope[:rows*nr])
	}
	if s.Mask != nil {
		b.mul(p, b.mask[:rows*nr])
	}

	for r := 0; r < rows; r += mr {
		at := b.LenA(first-i0+r, k1-k0) + b.LenA(mr, j-k0)
		b.StripA(b.packed[at:], ds[r*nr:], nr, keys, min(mr, rows-r))
	}

	b.InPlace(p, rows)
	b.InPlace(ds, rows)
	qt := b.From(b.PackedA(b.qt, i1-i0), first-i0)
	dot := b.From(b.PackedA(b.dot, i1-i0), first-i0)
	b.Part(gemm.Matrix{Data: b.dvt[j*d:], Row: nr, Col: 1}, d, nr, rows, dot, b.PackedB(p, rows), true)
	b.Part(gemm.Matrix{Data: b.dkt[j*d:], Row: nr, Col: 1}, d, nr, rows, qt, b.PackedB(ds, rows), true)
}

// findFirsts finds the first key that each strip of queries sees.
func (b *backward) findFirsts() {
	mr, _ := b.Strips()
	b.firsts = b.ws.keys[:0]
	for i := 0; i < b.s.Queries; i += mr {
		b.firsts = append(b.firsts, b.s.firstOf(i, min(i+mr, b.s.Queries)))
	}
	b.ws.keys = b.firsts
}

// firstOf is a key before which no query of the strip from i on sees one.
func (b *backward) firstOf(i int) int {
	if b.s.Starts == nil {
		return b.s.first(i)
	}
	mr, _ := b.Strips()
	return b.firsts[i/mr]
}

// lastOf is where those of the queries lo to hi end that see a key before end, in whole strips of queries.
func (b *backward) lastOf(lo, hi, end int) int {
	if b.s.Starts == nil {
		return hi
	}
	mr, _ := b.Strips()
	for hi > lo && b.firsts[(hi-1)/mr] >= end {
		hi = (hi - 1) / mr * mr
	}
	return hi
}

// queries sets dq, or adds to it: that of the queries i0 to i1, what the keys k0 to k1 contribute.
func (b *backward) queries(dq gemm.Matrix, i0, i1, k0, k1 int, add bool) {
	s, d := b.s, b.s.Dim
	mr, nr := b.Strips()
	k := b.PackedB(b.k[b.LenB(k0, d):], k1-k0)
	for i := i0; i < i1; i += mr {
		rows := min(mr, i1-i)
		first, seen := max(0, b.firstOf(i)-k0), min(k1-k0, i+rows+s.Offset-k0)
		if first >= seen {
			if !add {
				for r := range rows {
					clear(dq.Data[(i-i0+r)*dq.Row:][:d])
				}
			}
			continue
		}
		first = floor(first, nr) // in whole strips of keys, as dS is packed
		ds := b.From(b.PackedA(b.packed[b.LenA(i-i0, k1-k0):], k1-k0), first)
		b.Part(dq.At(i-i0, 0), rows, d, seen-first, ds, b.From(k, first), add)
	}
}
