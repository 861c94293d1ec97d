package actors

import (
	"fmt"
	"slices"

	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// crossing is how a tensor gets from the ranks that share one stage to those that share another, as one of them
// sees it.
type crossing struct {
	edge   grid.Edge
	own    int          // this rank's place among those of its stage
	peers  []int32      // the ranks of the other stage
	pieces []grid.Piece // that this rank sends, or takes
	takes  bool
}

// peer is the rank that a piece goes to, or comes from.
func (c *crossing) peer(p grid.Piece) int32 {
	if c.takes {
		return c.peers[p.Sender]
	}
	return c.peers[p.Receiver]
}

// ranks are those that this rank sends to, or takes from.
func (c *crossing) ranks() (all []int32) {
	for _, p := range c.pieces {
		if r := c.peer(p); !slices.Contains(all, r) {
			all = append(all, r)
		}
	}
	return all
}

// sends is how what a rank makes gets to a stage.
func (s *Spec) sends(rank, stage int) crossing {
	c := crossing{own: s.place(rank)[grid.Tensor], peers: s.group(rank, stage)}
	c.edge = grid.NewEdge(s.tensorSize(rank), len(c.peers), s.Slices, s.Way)
	c.pieces = c.edge.Sends(c.own)
	return c
}

// takes is how what a stage makes gets to a rank.
func (s *Spec) takes(rank, stage int) crossing {
	c := crossing{own: s.place(rank)[grid.Tensor], peers: s.group(rank, stage), takes: true}
	c.edge = grid.NewEdge(len(c.peers), s.tensorSize(rank), s.Slices, s.Way)
	c.pieces = c.edge.Takes(c.own)
	return c
}

// part is a piece of an output on its way.
type leaving struct {
	slot   int
	rank   int32
	part   int32
	tensor tensorops.Tensor // none: the receiver gets the numbers within its group
}

// depart records that an output leaves, in pieces. It owns t.
func (a *stageActor) depart(l *tensorops.List, slot int, t tensorops.Tensor, c *crossing) (all []leaving) {
	first, limit := c.edge.Has(c.own)
	last := -1 // that is all of t, and takes it along
	for i, p := range c.pieces {
		if p.First == first && p.Limit == limit {
			last = i
		}
	}
	for i, p := range c.pieces {
		rank, x := c.peer(p), tensorops.Tensor{}
		switch {
		case p.Empty():
		case i == last:
			x = t
		case p.First == first && p.Limit == limit:
			x = l.Alloc(t.DType(), t.Shape()...)
			l.Copy(x, t)
		default:
			x = cutPositions(l, t, p.First-first, p.Limit-first, limit-first)
		}
		all = append(all, leaving{slot: slot, rank: rank, part: int32(p.Part), tensor: a.stageOut(l, x, int(rank))}) //nolint:gosec // ranks of a grid
	}
	if last < 0 && t.Valid() {
		l.Free(t)
	}
	return all
}

// cutPositions records a copy of the positions from lo to hi, of parts of all, of a tensor [B, T, C].
func cutPositions(l *tensorops.List, t tensorops.Tensor, lo, hi, parts int) tensorops.Tensor {
	if !t.Valid() { // after an error
		return t
	}
	if t.Rank() != 3 || t.Dim(1)%parts != 0 || !t.Contiguous() {
		l.Fail(fmt.Errorf("%w: the positions of %v don't divide into %d equal parts", stages.ErrInput, t, parts))
		return tensorops.Tensor{}
	}
	b, each, c := t.Dim(0), t.Dim(1)/parts, t.Dim(2)
	x := l.Alloc(t.DType(), b, (hi-lo)*each, c)
	l.Copy(x.View(b, (hi-lo)*each*c), t.View(b, t.Dim(1)*c).Columns(lo*each*c, hi*each*c))
	return x
}

// arrive records that an input comes in, from its pieces.
func (a *stageActor) arrive(l *tensorops.List, v *visit, slot int, mb *stages.Microbatch) tensorops.Tensor {
	c := &v.takes[slot]
	var t tensorops.Tensor
	var pieces []tensorops.Tensor
	for _, m := range v.in[slot] {
		if m.Tensor.Valid() {
			pieces = append(pieces, a.stageIn(l, m.Tensor))
		}
	}
	if len(pieces) == 1 {
		t = pieces[0]
	} else if len(pieces) > 1 {
		t = joinPositions(l, pieces)
	}
	switch {
	case c.edge.To == 1 || c.edge.Way != grid.Broadcast && c.edge.Way != grid.Scatter:
		return t
	case v.kind == scheduler.ForwardEdge:
		return a.stage.CompleteInput(l, int(v.Chunk), mb, t)
	}
	return a.stage.CompleteGrad(l, int(v.Chunk), int(v.Microbatch), t)
}

// joinPositions records that tensors [B, Tᵢ, C] become one. It owns them.
func joinPositions(l *tensorops.List, pieces []tensorops.Tensor) tensorops.Tensor {
	positions, first := 0, pieces[0]
	for _, t := range pieces {
		if t.Rank() != 3 || t.DType() != first.DType() || t.Dim(0) != first.Dim(0) || t.Dim(2) != first.Dim(2) || !t.Contiguous() {
			l.Fail(fmt.Errorf("%w: %v and %v are not positions of the same sequences", stages.ErrInput, first, t))
			return tensorops.Tensor{}
		}
		positions += t.Dim(1)
	}
	b, c := first.Dim(0), first.Dim(2)
	all, at := l.Alloc(first.DType(), b, positions, c), 0
	for _, t := range pieces {
		n := t.Dim(1)
		l.Copy(all.View(b, positions*c).Columns(at*c, (at+n)*c), t.View(b, n*c))
		l.Free(t)
		at += n
	}
	return all
}
