package attn

import (
	"math"

	"github.com/troupe-ml/troupe/tensorops/cpu/internal/gemm"
)

// maxDepth bounds the keys, or queries, for which scores exist at a time. It is a
// multiple of every MR and NR.
const maxDepth = 288

// Shape is what all heads have in common. Query i sees the keys up to i + Offset, or the last Window
// of these, and none before Starts[i]. So it may see none.
type Shape struct {
	Queries, Keys, Dim int
	Window             int     // 0: all
	Offset             int     // position of the first query: Keys − Queries, or Keys at least if all keys come before
	Starts             []int32 // of each query's document, of any value; nil: all start before the keys
	Onto               bool    // Forward continues from the contents of O and LSE
	Scale              float32 // of the scores
	Cap                float32 // scaled scores become Cap·tanh(score/Cap); 0: they stay
	// Mask fills dst with the factors of query i's probabilities of the keys starting at first; nil
	// without dropout.
	Mask func(dst []float32, head, query, first int)
}

// end is where the keys end that the queries before one see.
func (s *Shape) end(query int) int { return min(query+s.Offset, s.Keys) }

// first is the first key that a query sees, Keys if it sees none, but for the end of what it sees.
func (s *Shape) first(query int) int {
	first := 0
	if s.Window > 0 {
		first = query + s.Offset + 1 - s.Window
	}
	if s.Starts != nil {
		first = max(first, int(s.Starts[query]))
	}
	return min(max(0, first), s.Keys)
}

// firstOf is a key before which none of the queries lo to hi sees one.
func (s *Shape) firstOf(lo, hi int) int {
	if s.Starts == nil {
		return s.first(lo)
	}
	first := s.Keys
	for i := lo; i < hi; i++ {
		first = min(first, s.first(i))
	}
	return first
}

// hides reports whether keys may be hidden from a query that come before its own position.
func (s *Shape) hides() bool { return s.Window > 0 || s.Starts != nil }

// last is where the queries end that see a key.
func (s *Shape) last(key int) int {
	if s.Window == 0 {
		return s.Queries
	}
	return max(0, min(key-s.Offset+s.Window, s.Queries))
}

// firstBlock is where the block of keys begins that has the first which the queries lo to hi see, or the
// last block that is not after them.
func (s *Shape) firstBlock(lo, hi int) int {
	return min(s.firstOf(lo, hi), s.end(hi)-1) / maxDepth * maxDepth
}

// factor is that of the scores in a softmax: under a cap they have been scaled before.
func (s *Shape) factor() float32 {
	if s.Cap != 0 {
		return 1
	}
	return s.Scale
}

// Head is one head of queries. All matrices have contiguous rows, of float32 or bfloat16.
type Head struct {
	Index int // for Mask
	Q, O  gemm.Matrix
	LSE   []float32 // logarithm of each query's sum of e^score

	DO, DQ gemm.Matrix // Backward
}

// Keys are the keys and values that one head or several of queries attend to.
type Keys struct {
	K, V   gemm.Matrix
	DK, DV gemm.Matrix // Backward
}

// Workspace is a core's memory. It grows to what the largest head needs and is
// kept.
type Workspace struct {
	buf  []float32
	used int
	half [2][]uint16
	keys []int // see backward.firsts
}

// cut hands out pieces of the workspace.
type cut struct{ *Workspace }

// get makes all of the workspace free. What it was found to lack the last time is there now.
func (w *Workspace) get() cut {
	if w.used > len(w.buf) {
		w.buf = make([]float32, w.used)
	}
	w.used = 0
	return cut{w}
}

// take is a piece of n floats, on a border of a line of the cache.
func (c cut) take(n int) []float32 {
	at := c.used
	c.used += ceil(n, lineLen) * lineLen
	if c.used > len(c.buf) {
		return make([]float32, n)
	}
	return c.buf[at:][:n:n]
}

// gathered is a matrix of n rows of d numbers with its rows of bfloat16, if it has such, one
// after the other in one of two places: a head's rows lie as far apart as all heads are wide,
// each on other lines of the cache, and every few on another page.
func (w *Workspace) gathered(m gemm.Matrix, n, d, place int) gemm.Matrix {
	if m.Half == nil {
		return m
	}
	to := &w.half[place]
	if len(*to) < n*d {
		*to = make([]uint16, n*d)
	}
	for i := range n {
		copy((*to)[i*d:][:d], m.Half[i*m.Row:])
	}
	return gemm.Matrix{Half: *to, Row: d, Col: 1}
}

// lineLen is the number of floats in a line of the cache.
const lineLen = 16

func ceil(a, b int) int { return (a + b - 1) / b }

var minusInf = float32(math.Inf(-1))

// lowest is below all scores, and a number.
const lowest = -1e30

// floor is the largest multiple of b that is no larger than a ≥ 0.
func floor(a, b int) int { return a / b * b }
