package delta

import (
	"math"

	"github.com/troupe-ml/troupe/tensorops/cpu/internal/gemm"
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/vec"
)

// Chunk is the number of positions in a chunk.
const Chunk = 64

// Kernel is how a path multiplies and goes through vectors.
type Kernel struct {
	Gemm *gemm.Kernel
	Vec  *vec.Kernels
}

// Shape is what all heads have in common.
type Shape struct {
	Positions, KeyWidth, ValueWidth int
	Eps                             float64 // of the norms of q and k
}

// Keys are a head of keys. The matrices have a row for each position, of float32 or bfloat16.
type Keys struct {
	Q, K   gemm.Matrix
	DQ, DK gemm.Matrix // Backward
}

// Head is a head of values.
type Head struct {
	V, O gemm.Matrix
	// Gates holds g, the logarithm of each position's decay, and Betas β: those of positions one after
	// another lie Stride apart.
	Gates, Betas []float32
	Stride       int
	State        []float32 // KeyWidth×ValueWidth, before the first position and after the last; nil: 0, and not needed

	DO, DV         gemm.Matrix // Backward
	DGates, DBetas []float32   // with the same Stride
}

// Workspace is a core's memory. It grows to what the largest head needs and is kept.
type Workspace struct {
	buf  []float32
	used int
}

// reset makes all of the workspace free. What it was found to lack the last time is there now.
func (ws *Workspace) reset() {
	if ws.used > len(ws.buf) {
		ws.buf = make([]float32, ws.used)
	}
	ws.used = 0
}

// take is a piece of n floats, on a border of a line of the cache.
func (ws *Workspace) take(n int) []float32 {
	const line = 16
	at := ws.used
	ws.used += (n + line - 1) / line * line
	if ws.used > len(ws.buf) {
		return make([]float32, n)
	}
	return ws.buf[at:][:n:n]
}

// work is a head under way.
type work struct {
	*Kernel
	s    *Shape
	keys *Keys
	h    *Head

	packA, packB []float32
	raw          []float32 // a row as it is in memory, in float32

	first, n int // the chunk's positions
	// Of the chunk, rows of KeyWidth: q̂ and k̂, E·q̂, −E·k̂ and L[C]·k̂.
	q, k, eq, ek, fk []float32
	// Rows of ValueWidth: N and β·N, and what is stored.
	rest, d, out []float32
	// n×n: L, k̂·k̂, q̂·k̂, −L·(k̂·k̂) below the diagonal, and L·(q̂·k̂).
	l, kk, qk, h2, p []float32
	state            []float32

	beta, e, factors []float32
	log              [Chunk]float64 // G
}

// newWork cuts the memory of a head from a workspace.
func newWork(kn *Kernel, ws *Workspace, s *Shape) *work {
	ws.reset()
	dk, dv, n := s.KeyWidth, s.ValueWidth, min(Chunk, s.Positions)
	keys, values, pairs := n*dk, n*dv, n*n
	wide := max(dk, dv, n)
	deep := min(wide, gemm.BlockK)
	return &work{Kernel: kn, s: s,
		packA: ws.take(kn.Gemm.LenA(wide, deep)), packB: ws.take(kn.Gemm.LenB(deep, wide)), raw: ws.take(wide),
		q: ws.take(keys), k: ws.take(keys), eq: ws.take(keys), ek: ws.take(keys), fk: ws.take(keys),
		rest: ws.take(values), d: ws.take(values), out: ws.take(values),
		l: ws.take(pairs), kk: ws.take(pairs), qk: ws.take(pairs), h2: ws.take(pairs), p: ws.take(pairs),
		beta: ws.take(n), e: ws.take(n), factors: ws.take(n),
	}
}

// rows is a dense matrix with rows of d numbers.
func rows(data []float32, d int) gemm.Matrix { return gemm.Matrix{Data: data, Row: d, Col: 1} }

// mul computes c = a·b, or c += a·b, of m×k by k×n.
func (w *work) mul(c, a, b gemm.Matrix, m, n, k int, add bool) {
	g := w.Gemm
	if g.Direct(c, a, b, m, n, k, add, func(n int) []float32 { return w.packA[:n] }) {
		return
	}
	for k0 := 0; k0 < k; k0 += gemm.BlockK {
		depth := min(gemm.BlockK, k-k0)
		g.PackA(w.packA, a.At(0, k0), m, depth)
		g.PackB(w.packB, b.At(k0, 0), depth, n)
		g.Block(c, m, n, depth, w.packA, w.packB, add || k0 > 0)
	}
}

// row is row i of a matrix with d columns: its memory, or a copy in float32 that lasts until the next.
func (w *work) row(m gemm.Matrix, i, d int) []float32 {
	if m.Half == nil {
		return m.Data[i*m.Row:][:d]
	}
	w.Vec.FromBF16(w.raw[:d], m.Half[i*m.Row:][:d])
	return w.raw[:d]
}

// put stores row i of a matrix.
func (w *work) put(m gemm.Matrix, i int, row []float32) {
	if m.Half == nil {
		copy(m.Data[i*m.Row:], row)
		return
	}
	w.Vec.ToBF16(m.Half[i*m.Row:][:len(row)], row)
}

// norm is 1/√(Σx² + eps).
func (w *work) norm(x []float32) float64 { return 1 / math.Sqrt(w.Vec.Squares(x)+w.s.Eps) }

// scale is what a query is multiplied by after its norm.
func (s *Shape) scale() float64 { return 1 / math.Sqrt(float64(s.KeyWidth)) }

// loadKeys reads q̂, if asked, and k̂ of n positions from first on.
func (w *work) loadKeys(first, n int, queries bool) {
	w.first, w.n = first, n
	d := w.s.KeyWidth
	for i := range n {
		k := w.row(w.keys.K, first+i, d)
		w.Vec.Scaled(w.k[i*d:][:d], k, float32(w.norm(k)))
		if queries {
			q := w.row(w.keys.Q, first+i, d)
			w.Vec.Scaled(w.q[i*d:][:d], q, float32(w.norm(q)*w.s.scale()))
		}
	}
}

// loadGates reads the chunk's gates and makes L and E of them.
func (w *work) loadGates() {
	n, sum := w.n, 0.0
	for i := range n {
		at := (w.first + i) * w.h.Stride
		sum += float64(w.h.Gates[at])
		w.log[i], w.beta[i], w.e[i] = sum, w.h.Betas[at], float32(sum)
	}
	w.Vec.Exp(w.e[:n], w.e[:n])
	for i := range n {
		row := w.l[i*n:][:n]
		for j := range i + 1 {
			row[j] = float32(w.log[i] - w.log[j])
		}
		w.Vec.Exp(row[:i+1], row[:i+1])
		clear(row[i+1:])
	}
}

// last is L[C], by which what a position adds to the state decays.
func (w *work) last() []float32 { return w.l[(w.n-1)*w.n:][:w.n] }

// scaleRows stores the rows of x, of d numbers, each times a factor.
func (w *work) scaleRows(y, x, factors []float32, d int) {
	for i, f := range factors {
		w.Vec.Scaled(y[i*d:][:d], x[i*d:][:d], f)
	}
}
