package stages

import (
	"fmt"

	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/tensorops"
)

// Passes are what a rank records for the actions of a table; *Stage has them.
type Passes interface {
	Forward(l *tensorops.List, chunk int, mb *Microbatch, in ...tensorops.Tensor) []tensorops.Tensor
	InputGrad(l *tensorops.List, chunk, index int, dy ...tensorops.Tensor) []tensorops.Tensor
	WeightGrad(l *tensorops.List, chunk, index int)
	Backward(l *tensorops.List, chunk, index int, dy ...tensorops.Tensor) []tensorops.Tensor
	CompleteInput(l *tensorops.List, chunk int, mb *Microbatch, t tensorops.Tensor) tensorops.Tensor
	CompleteGrad(l *tensorops.List, chunk, index int, t tensorops.Tensor) tensorops.Tensor
}

// Act records an action of a table: in a run, in the forecasts of memory and time, in the proof that a grid's step
// ends, and where layers are timed. mb is the microbatch of a forward; other actions know theirs. Act owns in, the
// action's whole inputs (Arrive), and returns its outputs, which the caller owns.
func Act(l *tensorops.List, p Passes, a scheduler.Action, mb *Microbatch, in ...tensorops.Tensor) []tensorops.Tensor {
	chunk, index := int(a.Chunk), int(a.Microbatch)
	switch a.Type {
	case scheduler.F:
		return p.Forward(l, chunk, mb, in...)
	case scheduler.I:
		return p.InputGrad(l, chunk, index, in...)
	case scheduler.W:
		p.WeightGrad(l, chunk, index)
	case scheduler.B:
		return p.Backward(l, chunk, index, in...)
	}
	return nil
}

// Arrive records that the pieces that came over an edge for one input of an action become that input. It owns them;
// there are none where the tensor group has it and this rank's part is to come from there.
func Arrive(l *tensorops.List, p Passes, a scheduler.Action, mb *Microbatch, e *grid.Edge, pieces ...tensorops.Tensor) tensorops.Tensor {
	t := joinPositions(l, pieces)
	switch {
	case e.To == 1 || e.Way != grid.Broadcast && e.Way != grid.Scatter:
		return t
	case a.Type == scheduler.F:
		return p.CompleteInput(l, int(a.Chunk), mb, t)
	}
	return p.CompleteGrad(l, int(a.Chunk), int(a.Microbatch), t)
}

// joinPositions records that tensors [B, Tᵢ, C] become one. It owns them.
func joinPositions(l *tensorops.List, pieces []tensorops.Tensor) tensorops.Tensor {
	switch len(pieces) {
	case 0:
		return tensorops.Tensor{}
	case 1:
		return pieces[0]
	}
	positions, first := 0, pieces[0]
	for _, t := range pieces {
		if t.Rank() != 3 || t.DType() != first.DType() || t.Dim(0) != first.Dim(0) || t.Dim(2) != first.Dim(2) || !t.Contiguous() {
			l.Fail(fmt.Errorf("%w: %v and %v are not positions of the same sequences", ErrInput, first, t))
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

// CutPositions records a copy of the positions from lo to hi, of parts equal ones, of a tensor [B, T, C]: a piece of
// an output that leaves.
func CutPositions(l *tensorops.List, t tensorops.Tensor, lo, hi, parts int) tensorops.Tensor {
	if !t.Valid() { // after an error
		return t
	}
	if t.Rank() != 3 || t.Dim(1)%parts != 0 || !t.Contiguous() {
		l.Fail(fmt.Errorf("%w: the positions of %v don't divide into %d equal parts", ErrInput, t, parts))
		return tensorops.Tensor{}
	}
	b, each, c := t.Dim(0), t.Dim(1)/parts, t.Dim(2)
	x := l.Alloc(t.DType(), b, (hi-lo)*each, c)
	l.Copy(x.View(b, (hi-lo)*each*c), t.View(b, t.Dim(1)*c).Columns(lo*each*c, hi*each*c))
	return x
}
