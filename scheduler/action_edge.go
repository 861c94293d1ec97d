package scheduler

// EdgeKind is the direction of the messages between chunks.
type EdgeKind uint8

// The kinds of edges.
const (
	ForwardEdge  EdgeKind = iota // activations, from chunk c to c+1, or along a skip
	BackwardEdge                 // gradients, from chunk c to c−1, or back along a skip
)

// String returns the kind's name.
func (k EdgeKind) String() string {
	if k == BackwardEdge {
		return "backward"
	}
	return "forward"
}

// to returns the chunk that receives over an edge of this kind from the given chunk, and whether
// such an edge exists: the last chunk sends no activation, chunk 0 no gradient.
func (k EdgeKind) to(chunk, chunks int) (int, bool) {
	if k == BackwardEdge {
		return chunk - 1, chunk > 0
	}
	return chunk + 1, chunk < chunks-1
}

// from returns the chunk that sends over an edge of this kind to the given chunk, and whether such
// an edge exists.
func (k EdgeKind) from(chunk, chunks int) (int, bool) {
	return (k ^ BackwardEdge).to(chunk, chunks)
}

// edge returns the kind of edge that carries the type's inputs and outputs. Only F, I and B have
// them.
func (t Type) edge() (EdgeKind, bool) {
	if t == F {
		return ForwardEdge, true
	}
	return BackwardEdge, t == I || t == B
}

// Credits holds, for each edge, how many outputs may be in flight at once: Forward[c] from chunk c
// to c+1, Backward[c] from chunk c to c−1, SkipForward[s] along the table's skip s, SkipBackward[s]
// back along it. An edge that doesn't exist has 0.
type Credits struct {
	Forward, Backward         []int // indexed by the sending chunk
	SkipForward, SkipBackward []int // indexed like Table.Skips
}

// Of returns the credits of the edge of this kind from the given chunk to its neighbor.
func (c Credits) Of(kind EdgeKind, chunk int) int {
	if kind == BackwardEdge {
		return c.Backward[chunk]
	}
	return c.Forward[chunk]
}

// OfSkip returns the credits of one direction of a skip. The skip is given by its index in
// Table.Skips.
func (c Credits) OfSkip(kind EdgeKind, skip int) int {
	if kind == BackwardEdge {
		return c.SkipBackward[skip]
	}
	return c.SkipForward[skip]
}

// OfEdge returns the credits of any edge, neighbor or skip.
func (c Credits) OfEdge(e Edge) int {
	if e.isSkip() {
		return c.OfSkip(e.Kind, int(e.Skip))
	}
	return c.Of(e.Kind, int(e.From))
}
