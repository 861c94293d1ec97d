package scheduler

import (
	"cmp"
	"fmt"
	"slices"
)

// Skip is a pair of chunks that exchange messages although they are not neighbors. Models with skip
// connections have skips, and so do decoders that read an encoder's output. The activation goes
// from chunk From to chunk To, with To > From+1, and its gradient from To to From.
//
// A skip does not change the order of the actions: the edges between neighbors already put To's
// forward after From's, and From's backward after To's. But its messages take their own time and
// have their own credits.
type Skip struct{ From, To int }

// String writes the two chunks in the direction of the activation: 0→3.
func (s Skip) String() string { return fmt.Sprintf("%d→%d", s.From, s.To) }

// Edge is a message path from one chunk to another.
type Edge struct {
	Kind     EdgeKind
	From, To int32 // the sending and the consuming chunk; for a gradient To < From
	Skip     int32 // index in Table.Skips; −1: the chunks are neighbors
}

// isSkip reports whether the edge is a skip.
func (e Edge) isSkip() bool { return e.Skip >= 0 }

// skip returns the chunks of a skip's edge in the direction of the activation.
func (e Edge) skip() Skip { return Skip{int(min(e.From, e.To)), int(max(e.From, e.To))} }

// owner names the owner of an edge's credits.
func (e Edge) owner() string {
	if e.isSkip() {
		return fmt.Sprintf("skip edge %v", e.skip())
	}
	return fmt.Sprintf("chunk %d", e.From)
}

// Edges holds all edges of a table, indexed by the chunks at their ends. It never changes after it
// is made, so ranks may share it.
type Edges struct {
	chunks int
	skips  []Skip
	// The edges of one kind, sorted by the consuming chunk and by the sending chunk, and the index
	// at which each chunk's edges begin. Index 0 is for edges from earlier chunks of the model, 1
	// for edges from later ones. Gradients come from later chunks.
	ins, outs [2][]Edge
	first     [2][]int32
}

// Ins returns the edges over which a chunk's inputs arrive: activations for an F, gradients for an
// I or B. The neighbor's edge is first, the skips follow in the order of Table.Skips. The chunk may
// start when each edge has delivered an input. The caller must not change the slice.
func (e *Edges) Ins(kind EdgeKind, chunk int32) []Edge {
	first := e.first[kind]
	return e.ins[kind][first[chunk]:first[chunk+1]]
}

// Outs returns the edges over which a chunk's output leaves, in the same order as Ins. The chunk
// may start when it has a credit of each edge. The caller must not change the slice.
func (e *Edges) Outs(kind EdgeKind, chunk int32) []Edge {
	first := e.first[kind^BackwardEdge]
	return e.outs[kind][first[chunk]:first[chunk+1]]
}

// SetSkips sets the table's skips, in any order. It returns ErrTable for skips that the table can't
// have. Afterwards Credits and Edges refer to skips by their index in Table.Skips.
func (t *Table) SetSkips(skips []Skip) error {
	skips = slices.Clone(skips)
	slices.SortFunc(skips, func(a, b Skip) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) })
	e, err := newEdges(t.NumChunks, skips)
	if err != nil {
		return err
	}
	t.Skips, t.edges = skips, e
	return nil
}

// Edges returns the table's edges, or ErrTable for skips that the table can't have. After SetSkips
// the call is cheap and allocates nothing; otherwise it builds the edges each time.
func (t *Table) Edges() (*Edges, error) {
	if e := t.edges; e != nil && e.chunks == t.NumChunks && slices.Equal(e.skips, t.Skips) {
		return e, nil
	}
	return newEdges(t.NumChunks, t.Skips)
}

func newEdges(chunks int, skips []Skip) (*Edges, error) {
	if err := checkSkips(chunks, skips); err != nil {
		return nil, err
	}
	e := &Edges{chunks: chunks, skips: slices.Clone(skips)}
	before, behind := make([]int32, chunks+1), make([]int32, chunks+1)
	for c := range chunks { // the number of edges of a chunk, stored at the chunk after it
		before[c+1], behind[c+1] = min(1, int32(c)), min(1, int32(chunks-1-c))
	}
	for _, s := range skips {
		before[s.To+1]++
		behind[s.From+1]++
	}
	for c := range chunks {
		before[c+1] += before[c]
		behind[c+1] += behind[c]
	}
	e.first = [2][]int32{before, behind}
	all := int(before[chunks])
	for kind := range e.ins {
		e.ins[kind], e.outs[kind] = make([]Edge, all), make([]Edge, all)
	}
	free := [2][]int32{slices.Clone(before), slices.Clone(behind)}
	add := func(from, to, skip int32) {
		i, o := free[0][to], free[1][from]
		free[0][to]++
		free[1][from]++
		forward, backward := Edge{ForwardEdge, from, to, skip}, Edge{BackwardEdge, to, from, skip}
		e.ins[ForwardEdge][i], e.outs[ForwardEdge][o] = forward, forward
		e.ins[BackwardEdge][o], e.outs[BackwardEdge][i] = backward, backward
	}
	for c := range int32(chunks) - 1 {
		add(c, c+1, -1)
	}
	for i, s := range skips {
		add(int32(s.From), int32(s.To), int32(i))
	}
	return e, nil
}

func checkSkips(chunks int, skips []Skip) error {
	if chunks < 1 || chunks > MaxActions {
		return fmt.Errorf("%w: %d chunks: want 1 to %d", ErrTable, chunks, MaxActions)
	}
	if len(skips) > MaxSkips {
		return fmt.Errorf("%w: %d skip edges: the limit is %d", ErrTable, len(skips), MaxSkips)
	}
	for i, s := range skips {
		var text string
		switch {
		case s.From < 0 || s.To < 0 || s.From >= chunks || s.To >= chunks:
			text = fmt.Sprintf("the chunks are 0 to %d", chunks-1)
		case s.To <= s.From:
			text = "it must lead to a later chunk: write the chunks in the order of the forward pass"
		case s.To == s.From+1:
			text = "the chunks are neighbors, which always have an edge: remove the skip"
		case i > 0 && s == skips[i-1]:
			text = "it occurs twice: keep one, since one edge carries all tensors between two chunks"
		case i > 0 && (s.From < skips[i-1].From || s.From == skips[i-1].From && s.To < skips[i-1].To):
			text = fmt.Sprintf("it follows %v: sort the skips by From, then by To", skips[i-1])
		default:
			continue
		}
		return fmt.Errorf("%w: skip edge %v: %s", ErrTable, s, text)
	}
	return nil
}
