package scheduler

// EdgeKind is the direction of the messages between neighbouring stages.
type EdgeKind uint8

// The kinds of edges.
const (
	ForwardEdge  EdgeKind = iota // activations, from stage s to s+1
	BackwardEdge                 // gradients, from stage s to s−1
)

// String returns the kind's name.
func (k EdgeKind) String() string {
	if k == BackwardEdge {
		return "backward"
	}
	return "forward"
}

// to returns the stage that an edge from a stage leads to, and whether there is
// one: the last stage sends no activation, stage 0 no gradient.
func (k EdgeKind) to(stage, stages int) (int, bool) {
	if k == BackwardEdge {
		return stage - 1, stage > 0
	}
	return stage + 1, stage < stages-1
}

// from returns the stage that an edge to a stage comes from, and whether there
// is one.
func (k EdgeKind) from(stage, stages int) (int, bool) {
	return (k ^ BackwardEdge).to(stage, stages)
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
// Forward[s] from stage s to s+1, Backward[s] from stage s to s−1. An edge that
// doesn't exist has none.
type Credits struct {
	Forward, Backward []int
}

// Of returns the credits of the edge of a kind that starts at a stage.
func (c Credits) Of(kind EdgeKind, stage int) int {
	if kind == BackwardEdge {
		return c.Backward[stage]
	}
	return c.Forward[stage]
}
