package attn

import (
	"math"

	"github.com/troupe-ml/troupe/tensorops/cpu/internal/gemm"
)

// maxDepth bounds the keys, or queries, for which scores exist at a time. It is a
// multiple of every MR and NR.
const maxDepth = 288

// Shape is what all heads have in common. Query i sees the keys up to
// i + Keys − Queries.
type Shape struct {
	Queries, Keys, Dim int
	Scale              float32 // of the scores
	// Mask stores the factors of query i's probabilities of the keys from first
	// on, as many as dst holds; nil without dropout.
	Mask func(dst []float32, head, query, first int)
}

// offset is how many keys there are before the first query's own.
func (s *Shape) offset() int { return s.Keys - s.Queries }

// Head is one head of queries. All matrices have contiguous rows.
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
type Workspace struct{ buf []float32 }

// cut hands out pieces of the workspace.
type cut struct{ rest []float32 }

// get makes room for n floats in all.
func (w *Workspace) get(n int) cut {
	if cap(w.buf) < n {
		w.buf = make([]float32, n)
	}
	return cut{w.buf[:n]}
}

func (c *cut) take(n int) []float32 {
	piece := c.rest[:n:n]
	c.rest = c.rest[n:]
	return piece
}

func ceil(a, b int) int { return (a + b - 1) / b }

var minusInf = float32(math.Inf(-1))
