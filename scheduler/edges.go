package scheduler

import (
	"cmp"
	"fmt"
	"slices"
)

// Skip is a way of messages between two chunks that are no neighbours, as models with
// skip connections have, and decoders that read what an encoder has made: the activation
// goes from chunk From to chunk To, with To > From+1, and its gradient from To to From.
//
// It adds nothing to the order of the actions, since the chain of neighbours has To's
// forward after From's, and From's backward after To's. But its messages take time of
// their own, and have credits of their own.
type Skip struct{ From, To int }

// String writes the chunks of the activation: 0→3.
func (s Skip) String() string { return fmt.Sprintf("%d→%d", s.From, s.To) }

// Edge is a way of messages from one chunk to another.
type Edge struct {
	Kind     EdgeKind
	From, To int32 // the chunks that send and that consume: of a gradient To < From
	Skip     int32 // place in Table.Skips; −1: the chunks are neighbours
}

// isSkip says whether the chunks of an edge are no neighbours.
func (e Edge) isSkip() bool { return e.Skip >= 0 }

// skip returns the chunks of a skip's edge in the order of the activation.
func (e Edge) skip() Skip { return Skip{int(min(e.From, e.To)), int(max(e.From, e.To))} }

// owner names whose the credits of an edge are.
func (e Edge) owner() string {
	if e.isSkip() {
		return fmt.Sprintf("skip edge %v", e.skip())
	}
	return fmt.Sprintf("chunk %d", e.From)
}

// Edges are all ways of messages of a table, by the chunks at their ends. They are not
// changed once they are made, so that ranks may share them.
type Edges struct {
	chunks int
	skips  []Skip
	// The edges of one kind, by the chunk that consumes and by the one that sends; and
	// where in the list those of each chunk begin: 0 by what is before it in the model, 1
	// by what is behind it. A gradient comes from behind.
	ins, outs [2][]Edge
	first     [2][]int32
}

// Ins returns the edges by which what a chunk needs comes to it, the neighbour's first,
// then by place in Table.Skips: of activations for an F, of gradients for an I or B. A
// chunk may start when each has brought something. The caller must not change them.
func (e *Edges) Ins(kind EdgeKind, chunk int32) []Edge {
	first := e.first[kind]
	return e.ins[kind][first[chunk]:first[chunk+1]]
}

// Outs returns the edges by which what a chunk makes leaves it, in the order of Ins. A
// chunk may start when it has a credit of each. The caller must not change them.
func (e *Edges) Outs(kind EdgeKind, chunk int32) []Edge {
	first := e.first[kind^BackwardEdge]
	return e.outs[kind][first[chunk]:first[chunk+1]]
}

// SetSkips gives the table its skips, in any order, and fails with ErrTable for those that
// it can't have. Credits and edges then go by their places in Table.Skips.
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

// Edges returns the table's edges, or fails with ErrTable for skips that it can't have.
// After SetSkips this is cheap, and allocates nothing; else they are made each time.
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
	for c := range chunks { // how many of the chunk there are, at the chunk after it
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
			text = "it must lead to a later chunk: name the chunks in the order of the forward pass"
		case s.To == s.From+1:
			text = "the chunks are neighbours, between which messages go anyway: leave it out"
		case i > 0 && s == skips[i-1]:
			text = "it is there twice: one edge carries all tensors between two chunks"
		case i > 0 && (s.From < skips[i-1].From || s.From == skips[i-1].From && s.To < skips[i-1].To):
			text = fmt.Sprintf("it stands behind %v: sort them by From, then by To", skips[i-1])
		default:
			continue
		}
		return fmt.Errorf("%w: skip edge %v: %s", ErrTable, s, text)
	}
	return nil
}
