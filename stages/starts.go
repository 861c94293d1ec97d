package stages

import (
	"fmt"

	"github.com/troupe-ml/troupe/tensorops"
)

// A packed microbatch has several documents in a sequence: Microbatch.Starts says where each position's document
// starts. Attention, the states of linear attention, positions, and the later tokens of multi-token prediction stay
// inside a document. Everything
// else treats each position alone.

// NeedsStarts reports whether a chunk has layers in which positions see one another or count from the start of
// their document.
func (s *Stage) NeedsStarts(chunk int) bool {
	for _, l := range s.chunks[chunk].layers {
		switch l := l.(type) {
		case *block, *mtp:
			return true
		case *embedding:
			if l.hasPositions {
				return true
			}
		case *head:
			if l.further > 0 {
				return true
			}
		}
	}
	return false
}

// CheckPacking checks that sequences may hold several documents. The error is ErrModel.
func (m *Model) CheckPacking() error {
	if !m.language() {
		return fmt.Errorf("%w: only language models can learn packed documents, not family %q", ErrModel, m.Config.Family)
	}
	return nil
}

// takeStarts checks the starts of a microbatch with whole sequences: each document covers consecutive positions.
func (f *inFlight) takeStarts(m *Model) error {
	mb := &f.mb
	mb.longest = 0
	if mb.Starts == nil {
		return nil
	}
	if err := m.CheckPacking(); err != nil {
		return err
	}
	if len(mb.Starts) != mb.Sequences*mb.Positions || mb.FirstPosition != 0 {
		return fmt.Errorf("%w: microbatch %d has %d starts of documents for %d sequences of %d positions from %d", ErrInput, mb.Index,
			len(mb.Starts), mb.Sequences, mb.Positions, mb.FirstPosition)
	}
	for i, start := range mb.Starts {
		at := i % mb.Positions
		if int(start) != at && (at == 0 || start != mb.Starts[i-1]) {
			return fmt.Errorf("%w: microbatch %d: position %d of sequence %d is in a document that starts at %d, which is neither this position nor the start of the document before",
				ErrInput, mb.Index, at, i/mb.Positions, start)
		}
		mb.longest = max(mb.longest, at-int(start)+1)
	}
	return nil
}

// uploadStarts copies the starts to the device: for each row the position of its document in the sequence, and in a
// context group also the starts of each pair of blocks.
func (f *inFlight) uploadStarts(p *pass, c *chunk) {
	if f.mb.Starts == nil || !p.stage.NeedsStarts(c.number) {
		return
	}
	f.starts = p.column(f.mb.Starts)
	if f.pairStarts = f.pairStarts[:0]; p.stage.opts.Context.size() > 1 {
		f.pairStarts = p.stage.opts.Context.startsOfPairs(f.pairStarts, &f.mb)
		f.ofPairs = p.column(f.pairStarts)
	}
	p.starts = f.starts
}

func (f *inFlight) freeStarts(l *tensorops.List) { free(l, &f.starts, &f.ofPairs) }

// column uploads numbers, one for each row.
func (c *pass) column(host []int32) tensorops.Tensor {
	t := c.Alloc(tensorops.Int32, len(host), 1)
	c.Upload(t, tensorops.HostBytes(host))
	return t
}

// positionsInDocument returns the number of positions that the longest sequence of positions has.
func (c *pass) positionsInDocument() int {
	if c.mb.longest > 0 {
		return c.mb.longest
	}
	return c.mb.FirstPosition + c.whole()
}

// residualStarts returns the starts of the rows of the residual stream on this rank. freeResidualStarts frees them.
func (c *pass) residualStarts() tensorops.Tensor {
	if !c.starts.Valid() || !c.sequence() {
		return c.starts
	}
	c.flight.ownRows = c.flight.ownRows[:0]
	for b := range c.mb.Sequences {
		first := b*c.mb.Positions + c.firstPosition()
		c.flight.ownRows = append(c.flight.ownRows, c.mb.Starts[first:first+c.positions()]...)
	}
	return c.column(c.flight.ownRows)
}

func (c *pass) freeResidualStarts(t tensorops.Tensor) {
	if !t.Same(c.starts) {
		c.Free(t)
	}
}

// startsOfPairs appends, for each of this rank's blocks of queries, each block of keys of the sequence, and each
// sequence, the starts counted from the block's first key.
func (p ContextParallel) startsOfPairs(to []int32, mb *Microbatch) []int32 {
	each := mb.Positions / 2
	for queries := range 2 {
		for keys := range 2 * p.size() {
			for b := range mb.Sequences {
				first := b*mb.Positions + queries*each
				for _, start := range mb.Starts[first : first+each] {
					to = append(to, start-int32(keys*each))
				}
			}
		}
	}
	return to
}

// startsOf returns the starts of a pair in one sequence; invalid if the microbatch is not packed.
func (c *pass) startsOf(sequence int, p pair) tensorops.Tensor {
	if c.flight == nil || !c.flight.ofPairs.Valid() {
		return tensorops.Tensor{}
	}
	each := c.mb.Positions / 2
	first := ((p.queries*2*c.stage.opts.Context.size()+p.blocks[1])*c.mb.Sequences + sequence) * each
	return c.flight.ofPairs.RowRange(first, first+each)
}
