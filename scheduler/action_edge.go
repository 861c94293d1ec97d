package scheduler

// EdgeKind is the direction of the messages between neighbouring chunks.
type EdgeKind uint8

// The kinds of edges.
const (
	ForwardEdge  EdgeKind = iota // activations, from chunk c to c+1
	BackwardEdge                 // gradients, from chunk c to c−1
)

// String returns the kind's name.
func (k EdgeKind) String() string {
	if k == BackwardEdge {
		return "backward"
	}
	return "forward"
}

// to returns the chunk that an edge from a chunk leads to, and whether there is
// one: the last chunk sends no activation, chunk 0 no gradient.
func (k EdgeKind) to(chunk, chunks int) (int, bool) {
	if k == BackwardEdge {
		return chunk - 1, chunk > 0
	}
	return chunk + 1, chunk < chunks-1
}

// from returns the chunk that an edge to a chunk comes from, and whether there
// is one.
func (k EdgeKind) from(chunk, chunks int) (int, bool) {
	return (k ^ BackwardEdge).to(chunk, chunks)
}

// edge returns the kind of edge that the type's input comes by and its output
// leaves by. Only F, I and B have them.
func (t Type) edge() (EdgeKind, bool) {
	if t == F {
		return ForwardEdge, true
	}
	return BackwardEdge, t == I || t == B
}

// Credits holds, for each edge, how many outputs the sender may have under way:
// Forward[c] from chunk c to c+1, Backward[c] from chunk c to c−1. An edge that
// doesn't exist has none.
type Credits struct {
	Forward, Backward []int
}

// Of returns the credits of the edge of a kind that starts at a chunk.
func (c Credits) Of(kind EdgeKind, chunk int) int {
	if kind == BackwardEdge {
		return c.Backward[chunk]
	}
	return c.Forward[chunk]
}
