package attn

import "github.com/troupe-ml/troupe/tensorops/cpu/internal/gemm"

// Backward computes each head's DQ, and kv's DK and DV, to which the heads add in
// the order given.
func (kn *Kernel) Backward(ws *Workspace, s *Shape, heads []Head, kv *Keys) {
	g := kn.Gemm
	nr, d := g.NR, s.Dim
	strips, lenT := ceil(s.Keys, nr), g.LenA(d, nr)
	depth := min(maxDepth, max(s.Keys, s.Queries))
	lenS, lenB, lenA, lenT2 := g.LenA(depth, nr), g.LenB(d, s.Keys), g.LenA(s.Queries, d), g.LenA(d, s.Queries)
	work := ws.get(2*lenB + g.LenB(s.Keys, d) + 2*strips*lenT + 2*lenA + 2*lenT2 + 3*lenS + g.LenA(depth, depth) + s.Queries)
	b := backward{Kernel: kn, s: s}
	b.kt, b.vt, b.k = work.take(lenB), work.take(lenB), work.take(g.LenB(s.Keys, d))
	b.dkt, b.dvt = work.take(strips*lenT), work.take(strips*lenT)
	b.q, b.do, b.qt, b.dot = work.take(lenA), work.take(lenA), work.take(lenT2), work.take(lenT2)
	b.p, b.ds, b.mask, b.packed = work.take(lenS), work.take(lenS), work.take(lenS), work.take(g.LenA(depth, depth))
	b.delta = work.take(s.Queries)

	g.PackB(b.kt, kv.K.T(), d, s.Keys)
	g.PackB(b.vt, kv.V.T(), d, s.Keys)
	for k0 := 0; k0 < s.Keys; k0 += maxDepth {
		g.PackB(b.k[g.LenB(k0, d):], kv.K.At(k0, 0), min(maxDepth, s.Keys-k0), d)
	}
	clear(b.dkt)
	clear(b.dvt)
	for i := range heads {
		b.head(&heads[i])
	}
	for j := range strips {
		n := min(nr, s.Keys-j*nr)
		g.Transpose(kv.DK.Data[j*nr*kv.DK.Row:], kv.DK.Row, b.dkt[j*lenT:], nr, d, n)
		g.Transpose(kv.DV.Data[j*nr*kv.DV.Row:], kv.DV.Row, b.dvt[j*lenT:], nr, d, n)
	}
}

// backward is the state of one group of heads.
type backward struct {
	*Kernel
	s *Shape
	h *Head

	kt, vt, k      []float32 // packed: kᵀ and vᵀ as B, k as B in blocks of keys
	q, do, qt, dot []float32 // packed: q and do as A, their transposes as A in blocks of queries
	dkt, dvt       []float32 // gradients, [strips of keys][dim][nr]
	p, ds, mask    []float32 // [queries][nr]
	packed         []float32 // ds of a block of queries and keys, as A
	delta          []float32 // do·o of each query
}

func (b *backward) head(h *Head) {
	b.h = h
	g, s, d := b.Gemm, b.s, b.s.Dim
	g.PackA(b.q, h.Q, s.Queries, d)
	g.PackA(b.do, h.DO, s.Queries, d)
	for i := range s.Queries {
		b.delta[i] = dot(h.DO.Data[i*h.DO.Row:][:d], h.O.Data[i*h.O.Row:])
	}
	for i := 0; i < s.Queries; i += maxDepth {
		n := min(maxDepth, s.Queries-i)
		g.PackA(b.qt[g.LenA(d, i):], h.Q.At(i, 0).T(), d, n)
		g.PackA(b.dot[g.LenA(d, i):], h.DO.At(i, 0).T(), d, n)
	}
	for k0 := 0; k0 < s.Keys; k0 += maxDepth {
		k1 := min(k0+maxDepth, s.Keys)
		for i0 := 0; i0 < s.Queries; i0 += maxDepth {
			i1 := min(i0+maxDepth, s.Queries)
			if i1+s.offset() <= k0 {
				continue // none of these queries sees any of these keys
			}
			for j := k0; j < k1; j += g.NR {
				b.strip(i0, i1, j, k0, k1)
			}
			b.queries(i0, i1, k0, k1)
		}
	}
}

// strip adds to the gradients of the strip of keys from j on, of the block k0 to
// k1, what the queries i0 to i1 contribute, and packs their dS for queries.
func (b *backward) strip(i0, i1, j, k0, k1 int) {
	g, s, d := b.Gemm, b.s, b.s.Dim
	nr, mr := g.NR, g.MR
	first := max(i0, (j-s.offset())/mr*mr) // in whole strips of queries
	if j < s.offset() {
		first = i0
	}
	rows := i1 - first
	if rows <= 0 {
		return
	}
	padded := ceil(rows, mr) * mr
	g.Block(gemm.Matrix{Data: b.p, Row: nr, Col: 1}, padded, nr, d, b.q[first*d:], b.kt[j*d:], false)
	g.Block(gemm.Matrix{Data: b.ds, Row: nr, Col: 1}, padded, nr, d, b.do[first*d:], b.vt[j*d:], false)
	for r := range rows { // queries that don't see all of these keys
		seen := first + r + s.offset() + 1 - j
		if seen >= nr {
			break
		}
		hidden := b.p[r*nr:][max(0, seen):nr]
		for i := range hidden {
			hidden[i] = minusInf
		}
	}
	p, ds := b.p[:rows*nr], b.ds[:rows*nr]
	if s.Mask != nil {
		for r := range rows {
			s.Mask(b.mask[r*nr:][:nr], b.h.Index, first+r, j)
		}
		b.mul(ds, b.mask[:rows*nr])
	}
	b.grad(p, ds, b.h.LSE[first:], b.delta[first:], s.Scale)
	if s.Mask != nil {
		b.mul(p, b.mask[:rows*nr])
	}

	lenT := g.LenA(d, nr)
	at := j / nr * lenT
	dims := ceil(d, mr) * mr
	qt := g.PackedA(b.qt[g.LenA(d, i0):], i1-i0).From(first - i0)
	dot := g.PackedA(b.dot[g.LenA(d, i0):], i1-i0).From(first - i0)
	g.Part(gemm.Matrix{Data: b.dvt[at:], Row: nr, Col: 1}, dims, nr, rows, dot, g.PackedB(p, rows), true)
	g.Part(gemm.Matrix{Data: b.dkt[at:], Row: nr, Col: 1}, dims, nr, rows, qt, g.PackedB(ds, rows), true)

	keys := min(nr, k1-j)
	for r := 0; r < rows; r += mr {
		g.StripA(b.packed[(first-i0+r)*(k1-k0)+(j-k0)*mr:], ds[r*nr:], nr, keys, min(mr, rows-r))
	}
}

// queries adds to the gradients of the queries i0 to i1 what the keys k0 to k1
// contribute.
func (b *backward) queries(i0, i1, k0, k1 int) {
	g, s, d := b.Gemm, b.s, b.s.Dim
	k := g.PackedB(b.k[g.LenB(k0, d):], k1-k0)
	for i := i0; i < i1; i += g.MR {
		rows := min(g.MR, i1-i)
		seen := min(k1-k0, i+rows+s.offset()-k0)
		if seen <= 0 {
			continue
		}
		ds := g.PackedA(b.packed[(i-i0)*(k1-k0):], k1-k0)
		g.Part(b.h.DQ.At(i, 0), rows, d, seen, ds, k, k0 > 0)
	}
}

func dot(a, b []float32) float32 {
	var s0, s1, s2, s3 float64
	b = b[:len(a)]
	for len(a) >= 4 {
		s0 += float64(a[0]) * float64(b[0])
		s1 += float64(a[1]) * float64(b[1])
		s2 += float64(a[2]) * float64(b[2])
		s3 += float64(a[3]) * float64(b[3])
		a, b = a[4:], b[4:]
	}
	for i, v := range a {
		s0 += float64(v) * float64(b[i])
	}
	return float32((s0 + s1) + (s2 + s3))
}
