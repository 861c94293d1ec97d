package stages

import (
	"fmt"

	"github.com/troupe-ml/troupe/tensorops"
)

// ContextParallel describes the group of ranks that share the positions of each sequence. Each rank
// of the group has the same layers and computes some of the positions; only attention needs the
// positions of the others. With the zero value the stage computes whole sequences.
//
// With N ranks, a sequence is cut into 2N equal blocks. Rank r has the blocks r and 2N−1−r, which
// balances the work of causal attention (Brandon et al. 2023, "Striped Attention", explain why; the
// order is Megatron-Core's). Keys and values travel around the ring of ranks (Liu et al. 2023,
// "Ring Attention with Blockwise Transformers"). Each pair of a query block and a key block is
// computed causally, computed in full, or skipped. A layer with a window skips more pairs: those that
// its window hides wholly.
//
// The caller passes microbatches with whole sequences; the stage takes its part. Its gradients are
// parts of a sum over the group, so DataParallel's group must include the group's ranks. Routers of experts route each rank's
// positions; their balance loss is that of the whole microbatch. A softmax
// over blocks is rounded in another order than one over all keys. So the size of the group changes
// the last bits of the result; they are the same in every run.
type ContextParallel struct {
	Group tensorops.Group
}

func (p ContextParallel) size() int {
	if p.Group == nil {
		return 1
	}
	return p.Group.Size()
}

func (p ContextParallel) rank() int {
	if p.Group == nil {
		return 0
	}
	return p.Group.Rank()
}

// CheckContext checks that size ranks can share the positions of the model's sequences. The error
// is ErrModel.
func (m *Model) CheckContext(size int) error {
	c := m.Config
	switch {
	case size <= 1:
		return nil
	case !m.language():
		return fmt.Errorf("%w: context parallelism of %d: only language models can share positions, not family %q", ErrModel, size, c.Family)
	case c.Context%(2*size) != 0:
		return fmt.Errorf("%w: context parallelism of %d: the %d positions of a sequence do not divide into %d blocks, two for each rank",
			ErrModel, size, c.Context, 2*size)
	case m.passing.any():
		return fmt.Errorf("%w: context parallelism of %d: it is not supported with %s: use pipeline or data parallelism", ErrModel,
			size, c.passed())
	case !c.Delta.none():
		return fmt.Errorf("%w: context parallelism of %d: the state of the %s passes from each position to the next, across the ranks' blocks: use pipeline or tensor parallelism",
			ErrModel, size, deltaSwitch)
	case !c.Latent.none():
		return fmt.Errorf("%w: context parallelism of %d: it is not supported with %s: use pipeline or data parallelism", ErrModel,
			size, latentSwitch)
	case c.MTPLayers > 0:
		return fmt.Errorf("%w: context parallelism of %d: multi-token prediction needs the tokens after a block, which are on other ranks",
			ErrModel, size)
	}
	return nil
}

// positionBlocks returns the two blocks, of 2·size, that a rank has of each sequence.
func positionBlocks(rank, size int) [2]int { return [2]int{rank, 2*size - 1 - rank} }

// part returns this rank's part of a microbatch with whole sequences: its blocks of each sequence.
func (p ContextParallel) part(mb *Microbatch, f *inFlight) (Microbatch, error) {
	own := *mb
	if p.size() <= 1 {
		return own, nil
	}
	each := mb.Positions / (2 * p.size())
	if mb.Positions != 2*p.size()*each || mb.FirstPosition != 0 {
		return own,
			fmt.Errorf("%w: microbatch %d has %d positions starting at %d, which context parallelism of %d cannot share equally: pass whole sequences whose length is a multiple of %d",
				ErrInput, mb.Index, mb.Positions, mb.FirstPosition, p.size(), 2*p.size())
	}
	own.Positions = 2 * each
	f.ownTokens = p.blocksOf(f.ownTokens[:0], mb.Tokens, mb.Positions)
	f.ownTargets = p.blocksOf(f.ownTargets[:0], mb.Targets, mb.Positions)
	own.Tokens, own.Targets = f.ownTokens, f.ownTargets
	if mb.Starts != nil {
		f.ownStarts = p.blocksOf(f.ownStarts[:0], mb.Starts, mb.Positions)
		own.Starts = f.ownStarts
	}
	return own, nil
}

// blocksOf appends this rank's blocks of ids [B, positions] to a slice.
func (p ContextParallel) blocksOf(to, ids []int32, positions int) []int32 {
	each := positions / (2 * p.size())
	for first := 0; first+positions <= len(ids); first += positions {
		for _, block := range positionBlocks(p.rank(), p.size()) {
			to = append(to, ids[first+block*each:first+(block+1)*each]...)
		}
	}
	return to
}

// run is a range of consecutive positions: the rows [lo, hi) of each sequence of a tensor, whose
// positions start at first.
type run struct{ lo, hi, first int }

// runs returns this rank's positions, of those that the ranks of its tensor group have together. In generation, these are
// the new positions of each sequence.
func (c *pass) runs() []run {
	if c.fed != nil {
		return c.fed.runs
	}
	if c.stage.opts.Context.size() <= 1 {
		return []run{{0, c.mb.Positions, c.mb.FirstPosition}}
	}
	each := c.mb.Positions / 2
	group := c.stage.opts.Context
	at := positionBlocks(group.rank(), group.size())
	return []run{{0, each, at[0] * each}, {each, 2 * each, at[1] * each}}
}

// residualRuns returns the part of them that the residual stream has on this rank.
func (c *pass) residualRuns() []run {
	return c.runsIn(c.firstPosition(), c.firstPosition()+c.positions())
}

// runsIn returns the part of the runs in the rows [from, to) of each sequence, as runs of a tensor that has only these.
func (c *pass) runsIn(from, to int) (own []run) {
	for _, r := range c.runs() {
		if lo, hi := max(r.lo, from), min(r.hi, to); lo < hi {
			own = append(own, run{lo - from, hi - from, r.first + lo - r.lo})
		}
	}
	return own
}

// eachRun calls f with the rows of t, [B, T, …], of each run of positions, and their starts, if there are any. If
// there is only one run, these are the rows of all sequences.
func (c *pass) eachRun(t, starts tensorops.Tensor, runs []run, f func(rows, starts tensorops.Tensor, r run)) {
	if !t.Valid() { // after an error
		return
	}
	if len(runs) == 1 {
		f(t, starts, runs[0])
		return
	}
	each := runs[len(runs)-1].hi
	for b := range c.mb.Sequences {
		for _, r := range runs {
			of := starts
			if of.Valid() {
				of = of.RowRange(b*each+r.lo, b*each+r.hi)
			}
			f(t.RowRange(b*each+r.lo, b*each+r.hi), of, r)
		}
	}
}
