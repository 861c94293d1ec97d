package stages

import (
	"fmt"

	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/tensorops"
)

// rounds reports whether tensors between chunks have another type than within them.
func (s *Stage) rounds() bool {
	return s.opts.Wire == tensorops.BFloat16 && s.opts.Residual == tensorops.Float32 && s.model.language()
}

// EdgeType returns the type of the tensors between the chunks of a language model.
func (s *Stage) EdgeType() tensorops.DType { return s.opts.EdgeType() }

// EdgeType returns the type of the tensors between the chunks of a language model.
func (o *Options) EdgeType() tensorops.DType {
	if o.Wire == tensorops.BFloat16 {
		return tensorops.BFloat16
	}
	return o.Residual
}

// fromEdge converts tensors from other chunks, which it owns, to the type of the residual stream.
func (s *Stage) fromEdge(l *tensorops.List, ts []tensorops.Tensor) []tensorops.Tensor {
	return s.retyped(l, ts, tensorops.Float32)
}

// toEdge converts tensors for other chunks, which it owns, to the type of the edges.
func (s *Stage) toEdge(l *tensorops.List, ts []tensorops.Tensor) []tensorops.Tensor {
	return s.retyped(l, ts, tensorops.BFloat16)
}

func (s *Stage) retyped(l *tensorops.List, ts []tensorops.Tensor, to tensorops.DType) []tensorops.Tensor {
	if !s.rounds() {
		return ts
	}
	for i, t := range ts {
		if !t.Valid() {
			continue
		}
		ts[i] = l.Alloc(to, t.Shape()...)
		l.Copy(ts[i], t)
		l.Free(t)
	}
	return ts
}

// Arrive records how the pieces that came over an edge become one input of an action. It owns the
// pieces. There are none if the tensor group has the input and this rank gets its part from the
// group.
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

// joinPositions records the concatenation of tensors [B, Tᵢ, C] along T. It owns them.
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

// CutPositions records a copy of the positions [lo, hi), of parts equal ones, of a tensor [B, T,
// C]: a piece of an output to send.
func CutPositions(l *tensorops.List, t tensorops.Tensor, lo, hi, parts int) tensorops.Tensor {
	if !t.Valid() { // after an error
		return t
	}
	if t.Rank() != 3 || t.Dim(1)%parts != 0 || !t.Contiguous() {
		l.Fail(fmt.Errorf("%w: the positions of %v do not divide into %d equal parts", ErrInput, t, parts))
		return tensorops.Tensor{}
	}
	b, each, c := t.Dim(0), t.Dim(1)/parts, t.Dim(2)
	x := l.Alloc(t.DType(), b, (hi-lo)*each, c)
	l.Copy(x.View(b, (hi-lo)*each*c), t.View(b, t.Dim(1)*c).Columns(lo*each*c, hi*each*c))
	return x
}

// A tensor that comes over an edge for a tensor group need not come to each of its ranks. The first
// rank may receive it and share it with the others, or each rank may receive a part.

// CompleteInput turns what this rank received of a chunk's input, in a language model, into the
// input that every rank of the tensor group has. If the first rank received the whole tensor, it
// broadcasts it; the other ranks pass an invalid t. If each rank received an equal part of the
// positions, the parts are gathered. It owns t.
func (s *Stage) CompleteInput(l *tensorops.List, chunk int, mb *Microbatch, t tensorops.Tensor) tensorops.Tensor {
	c := s.chunks[chunk]
	if c == nil {
		l.Fail(fmt.Errorf("%w: forward of microbatch %d on chunk %d", ErrMicrobatch, mb.Index, chunk))
		return t
	}
	own := *mb
	own.Positions /= s.opts.Context.size()
	return s.complete(l, c, "input", c.mtpBefore, c.widthIn, &own, t)
}

// CompleteGrad is CompleteInput for the gradient of the chunk's output.
func (s *Stage) CompleteGrad(l *tensorops.List, chunk, index int, t tensorops.Tensor) tensorops.Tensor {
	c, f := s.find(chunk, index)
	if f == nil {
		l.Fail(fmt.Errorf("%w: backward of microbatch %d on chunk %d", ErrMicrobatch, index, chunk))
		return t
	}
	return s.complete(l, c, "gradient", c.mtpBefore+c.mtp, c.widthOut, &f.mb, t)
}

func (s *Stage) complete(l *tensorops.List, c *chunk, what string, mtp, width int, mb *Microbatch, t tensorops.Tensor) tensorops.Tensor {
	g, shape := s.opts.Tensor, s.edgeShape(mtp, width, mb)
	if g.size() <= 1 {
		return t
	}
	alloc := func() tensorops.Tensor { return l.Alloc(s.EdgeType(), shape[0], shape[1], shape[2]) }
	if part := shape[1] / g.size(); t.Valid() && part > 0 && part*g.size() == shape[1] && t.Rank() == 3 && t.Dim(1) == part {
		all := alloc()
		l.AllGather(all, t, 1, g.Group)
		l.Free(t)
		return all
	}
	if !t.Valid() && g.rank() > 0 {
		t = alloc()
	} else if err := s.checkShape(c, what, shape, mb, t); err != nil {
		l.Fail(err)
		return t
	}
	l.Broadcast(t, 0, g.Group)
	return t
}

// checkEdge compares the tensors that came over a chunk's edges with what it takes: n tensors. In a
// language model their shape is [B, T, width]. In training, B is multiplied by one more than the number
// of multi-token-prediction layers before the edge. The model's ends take none.
func (s *Stage) checkEdge(c *chunk, what string, n, mtp, width int, mb *Microbatch, ts []tensorops.Tensor) error {
	if len(ts) != n {
		if n == 0 {
			return fmt.Errorf("%w: chunk %d takes no %s, got %v for microbatch %d", ErrInput, c.number, what, ts[0], mb.Index)
		}
		if len(ts) > 0 || !s.model.language() {
			return fmt.Errorf("%w: chunk %d takes %d tensors as its %s, got %d for microbatch %d", ErrInput, c.number, n, what, len(ts), mb.Index)
		}
		ts = []tensorops.Tensor{{}}
	}
	if n == 0 || !s.model.language() {
		return nil
	}
	return s.checkShape(c, what, s.edgeShape(mtp, width, mb), mb, ts[0])
}

// edgeShape returns the shape of a tensor between the chunks of a language model, after mtp layers
// of multi-token prediction. See Model.EdgeWidth for its width.
func (s *Stage) edgeShape(mtp, width int, mb *Microbatch) [3]int {
	b := mb.Sequences
	if mb.Train {
		b *= 1 + mtp
	}
	return [3]int{b, s.edgePositions(mb), width}
}

func (s *Stage) checkShape(c *chunk, what string, shape [3]int, mb *Microbatch, t tensorops.Tensor) error {
	if !t.Valid() || t.DType() != s.EdgeType() || t.Rank() != 3 || [3]int(t.Shape()) != shape {
		return fmt.Errorf("%w: chunk %d takes a %s of %v%v for microbatch %d, got %v", ErrInput, c.number, what, s.EdgeType(), shape, mb.Index, t)
	}
	return nil
}
