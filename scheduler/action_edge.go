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

// to returns the neighbour that an edge from a chunk leads to, and whether there is
// one: the last chunk sends no activation, chunk 0 no gradient.
func (k EdgeKind) to(chunk, chunks int) (int, bool) {
	if k == BackwardEdge {
		return chunk - 1, chunk > 0
	}
	return chunk + 1, chunk < chunks-1
}

// from returns the neighbour that an edge to a chunk comes from, and whether there
// is one.
func (k EdgeKind) from(chunk, chunks int) (int, bool) {
	return (k ^ BackwardEdge).to(chunk, chunks)
}

// edge returns the kind of edge that the type's inputs come by and its outputs
// leave by. Only F, I and B have them.
func (t Type) edge() (EdgeKind, bool) {
	if t == F {
		return ForwardEdge, true
	}
	return BackwardEdge, t == I || t == B
}

// Credits holds, for each edge, how many outputs the sender may have under way:
// Forward[c] from chunk c to c+1, Backward[c] from chunk c to c−1, SkipForward[s] along
// the table's skip s, SkipBackward[s] back along it. An edge that doesn't exist has none.
type Credits struct {
	Forward, Backward         []int // by the chunk that sends
	SkipForward, SkipBackward []int // by Table.Skips
}

// Of returns the credits of the neighbours' edge of a kind that starts at a chunk.
func (c Credits) Of(kind EdgeKind, chunk int) int {
	if kind == BackwardEdge {
		return c.Backward[chunk]
	}
	return c.Forward[chunk]
}

// OfSkip returns the credits of a kind of a skip, by its place in Table.Skips.
func (c Credits) OfSkip(kind EdgeKind, skip int) int {
	if kind == BackwardEdge {
		return c.SkipBackward[skip]
	}
	return c.SkipForward[skip]
}

// OfEdge returns the credits of any edge.
func (c Credits) OfEdge(e Edge) int {
	if e.isSkip() {
		return c.OfSkip(e.Kind, int(e.Skip))
	}
	return c.Of(e.Kind, int(e.From))
}
