package attn

import (
	"math"

	"github.com/troupe-ml/troupe/tensorops/cpu/internal/gemm"
)

// Forward computes h.O and h.LSE.
func (kn *Kernel) Forward(ws *Workspace, s *Shape, h *Head, kv *Keys) {
	g := kn.multiplier()
	nr, d := kn.Gemm.NR, s.Dim
	keys := min(maxDepth, s.Keys)
	lenS := max(keys*nr, g.LenB(keys, nr))
	work := ws.get()
	qt, kp, vt := work.take(g.LenB(d, s.Queries)), work.take(g.LenA(s.Keys, d)), work.take(g.LenA(d, s.Keys))
	f := forward{Kernel: kn, product: g, s: s, h: h, scores: work.take(lenS), ot: work.take(d * nr), tmp: work.take(d * nr),
		top: work.take(nr), sum: work.take(nr), factor: work.take(nr)}
	if s.Mask != nil {
		f.mask, f.rows = work.take(lenS), work.take(lenS)
	}
	g.PackB(qt, h.Q.T(), d, s.Queries)
	from := 0 // what no query sees is not packed
	if s.Queries > 0 {
		from = s.firstBlock(0, s.Queries)
	}
	g.PackA(kp[g.LenA(from, d):], kv.K.At(from, 0), s.Keys-from, d)
	for k0 := from; k0 < s.Keys; k0 += maxDepth {
		g.PackA(vt[g.LenA(d, k0):], kv.V.At(k0, 0).T(), d, min(maxDepth, s.Keys-k0))
	}
	for i := 0; i < s.Queries; i += nr {
		f.strip(i, min(nr, s.Queries-i), qt[g.LenB(d, i):], kp, vt)
	}
}

// forward is the state of one strip of queries.
type forward struct {
	*Kernel
	product
	s *Shape
	h *Head

	scores, mask, rows []float32 // [keys][nr]; the mask also as [nr][keys]
	ot, tmp            []float32 // [dim][nr]
	top, sum, factor   []float32 // [nr]
}

// strip computes n queries from i on.
func (f *forward) strip(i, n int, qt, kp, vt []float32) {
	s, d, nr := f.s, f.s.Dim, f.Gemm.NR
	for j := range nr {
		f.top[j], f.sum[j] = minusInf, 0
	}
	if s.Onto {
		f.resume(i, n)
	}
	seen, first := s.end(i+n), s.firstOf(i, i+n)
	if first >= seen {
		f.unseen(i, n)
		return
	}
	mr, _ := f.Strips()
	from := floor(first, mr) // in whole strips of keys
	for k0 := from; k0 < seen; k0 = floor(k0, maxDepth) + maxDepth {
		block := floor(k0, maxDepth)
		kk := min(block+maxDepth, seen) - k0
		p := f.scores[:kk*nr]
		f.Block(gemm.Matrix{Data: p, Row: nr, Col: 1}, kk, nr, d, kp[f.LenA(k0, d):], qt, false)
		if s.Cap != 0 {
			f.cap(p, s.Scale/s.Cap, s.Cap)
		}
		for k := max(0, i+s.Offset+1-k0); k < kk; k++ { // keys that some queries don't see
			hidden := p[k*nr:][:min(nr, k0+k-s.Offset-i)]
			for j := range hidden {
				hidden[j] = minusInf
			}
		}
		f.past(p, i, n, k0, kk)
		f.softmax(p, k0 > from || s.Onto)
		if s.Mask != nil {
			f.drop(p, i, n, k0, kk)
		}
		f.InPlace(p, kk)
		packed := f.From(f.PackedA(vt[f.LenA(d, block):], min(maxDepth, s.Keys-block)), k0-block)
		f.Part(gemm.Matrix{Data: f.ot, Row: nr, Col: 1}, d, nr, kk, packed, f.PackedB(p, kk), k0 > from || s.Onto)
	}
	for j := range n {
		f.h.LSE[i+j] = float32(float64(f.top[j]) + math.Log(float64(f.sum[j])))
		f.factor[j] = 0
		if f.sum[j] > 0 { // the query sees a key
			f.factor[j] = 1 / f.sum[j]
		}
	}
	f.scale(f.ot, f.factor)
	f.store(f.h.O, i, f.ot, d, n, f.tmp)
}

// unseen is strip for n queries from i on that see no key.
func (f *forward) unseen(i, n int) {
	if f.s.Onto {
		return
	}
	clear(f.ot)
	for j := range n {
		f.h.LSE[i+j] = minusInf
	}
	f.store(f.h.O, i, f.ot, f.s.Dim, n, f.tmp)
}

// resume takes n queries from i on where attention over other keys has left them: o as it is with
// a sum of 1 under the logarithm of the sum.
func (f *forward) resume(i, n int) {
	nr, d := f.Gemm.NR, f.s.Dim
	clear(f.ot)
	for j := range n {
		f.top[j], f.sum[j] = f.h.LSE[i+j], 1
		o := f.h.O.At(i+j, 0)
		for c := range d {
			f.ot[c*nr+j] = valueAt(o, c)
		}
	}
}

// valueAt is element c of a matrix's first row.
func valueAt(m gemm.Matrix, c int) float32 {
	if m.Half != nil {
		return math.Float32frombits(uint32(m.Half[c]) << 16)
	}
	return m.Data[c]
}

// past hides those of kk keys from k0 on that have left the windows of n queries from i on, or come before
// their documents.
func (f *forward) past(p []float32, i, n, k0, kk int) {
	s, nr := f.s, f.Gemm.NR
	if s.Starts != nil {
		for j := range n {
			for k := range min(kk, s.first(i+j)-k0) {
				p[k*nr+j] = minusInf
			}
		}
		return
	}
	if s.Window == 0 {
		return
	}
	for k := range min(kk, s.first(i+nr-1)-k0) {
		hidden := p[k*nr:][max(0, k0+k+s.Window-s.Offset-i):nr]
		for j := range hidden {
			hidden[j] = minusInf
		}
	}
}

// softmax replaces scores by e^(score − top), with top raised to the block's
// largest score and what was summed up under the old top brought in line.
func (f *forward) softmax(p []float32, again bool) {
	if again {
		copy(f.factor, f.top)
	}
	f.max(f.top, p, f.s.factor())
	if f.s.hides() {
		for j, top := range f.top {
			f.top[j] = max(top, lowest) // of a query whose first key is in a later block
		}
	}
	if again {
		for j, old := range f.factor {
			f.factor[j] = float32(math.Exp(float64(old - f.top[j])))
			f.sum[j] *= f.factor[j]
		}
		f.scale(f.ot, f.factor)
	}
	f.exp(p, f.top, f.sum, f.s.factor())
}

// drop applies the mask of n queries from i on to their probabilities of kk keys
// from k0 on.
func (f *forward) drop(p []float32, i, n, k0, kk int) {
	for j := range n {
		f.s.Mask(f.rows[j*kk:][:kk], f.h.Index, i+j, k0)
	}
	f.Gemm.PackB(f.mask, gemm.Matrix{Data: f.rows, Row: 1, Col: kk}, kk, n)
	f.mul(p, f.mask[:kk*f.Gemm.NR])
}
