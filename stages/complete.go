package stages

import (
	"fmt"

	"github.com/troupe-ml/troupe/tensorops"
)

// What comes over an edge for a tensor group need not come to each of its ranks: the first one may get it and share
// it with the others, or each of them gets a part.

// CompleteInput makes of what came for this rank of a chunk's input, in a language model, the input that every
// rank of the tensor group has: of nothing, or on the first rank of all, by a broadcast; of an equal part of the positions
// by gathering them. It owns t.
func (s *Stage) CompleteInput(l *tensorops.List, chunk int, mb *Microbatch, t tensorops.Tensor) tensorops.Tensor {
	c := s.chunks[chunk]
	if c == nil {
		l.Fail(fmt.Errorf("%w: forward of microbatch %d on chunk %d", ErrMicrobatch, mb.Index, chunk))
		return t
	}
	own := *mb
	own.Positions /= s.opts.Context.size()
	return s.complete(l, c, "input", c.mtpBefore, &own, t)
}

// CompleteGrad is CompleteInput for the gradient of what the chunk has sent.
func (s *Stage) CompleteGrad(l *tensorops.List, chunk, index int, t tensorops.Tensor) tensorops.Tensor {
	c, f := s.find(chunk, index)
	if f == nil {
		l.Fail(fmt.Errorf("%w: backward of microbatch %d on chunk %d", ErrMicrobatch, index, chunk))
		return t
	}
	return s.complete(l, c, "gradient", c.mtpBefore+c.mtp, &f.mb, t)
}

func (s *Stage) complete(l *tensorops.List, c *chunk, what string, mtp int, mb *Microbatch, t tensorops.Tensor) tensorops.Tensor {
	g, shape := s.opts.Tensor, s.edgeShape(mtp, mb)
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
