package stages

import (
	"fmt"

	"github.com/troupe-ml/troupe/tensorops"
)

// ContextParallel says with whom a stage shares the positions of each sequence: each rank of the group has the same
// layers and computes some positions, and only attention needs those of the others. The zero value: the stage has whole
// sequences.
//
// Of N ranks each has two of 2N equal blocks of a sequence, rank r the blocks r and 2N−1−r, so that the work of causal
// attention is even (Brandon et al. 2023, "Striped Attention", discuss why; this order is Megatron-Core's). Keys and
// values go round the ranks (Liu et al. 2023, "Ring Attention with Blockwise Transformers"). Every pair of blocks
// is causal, seen whole, or not seen.
//
// A microbatch is given with whole sequences, of which the stage takes its part. Gradients are parts of a sum over the
// group: DataParallel's group has its ranks too. A softmax over blocks is rounded in another order than
// one over all keys, so that the size of the group shows in the last bits. It is the same from run to run.
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

// CheckContext says whether size ranks can share the positions of the model's sequences.
func (m *Model) CheckContext(size int) error {
	c := m.Config
	switch {
	case size <= 1:
		return nil
	case !m.language():
		return fmt.Errorf("%w: context parallelism of %d: only the language models' layers can share positions, and family %q has layers of its own", ErrModel, size, c.Family)
	case c.Context%(2*size) != 0:
		return fmt.Errorf("%w: context parallelism of %d: the %d positions of a sequence don't divide into %d blocks, two for each rank",
			ErrModel, size, c.Context, 2*size)
	case c.Window > 0:
		return fmt.Errorf("%w: context parallelism of %d: attention over blocks sees all positions before its own, and the model has a window of %d", ErrModel, size, c.Window)
	case c.MTPLayers > 0:
		return fmt.Errorf("%w: context parallelism of %d: multi-token prediction needs the tokens behind a block, which other ranks have",
			ErrModel, size)
	}
	return nil
}

// positionBlocks are the two blocks of a sequence, of 2·size, that a rank has.
func positionBlocks(rank, size int) [2]int { return [2]int{rank, 2*size - 1 - rank} }

// part makes of a microbatch with whole sequences that of this rank: its blocks of each.
func (p ContextParallel) part(mb *Microbatch, f *inFlight) (Microbatch, error) {
	own := *mb
	if p.size() <= 1 {
		return own, nil
	}
	each := mb.Positions / (2 * p.size())
	if mb.Positions != 2*p.size()*each || mb.FirstPosition != 0 {
		return own,
			fmt.Errorf("%w: microbatch %d has %d positions from %d on, which context parallelism of %d can't share alike: they must be whole sequences, of a multiple of %d positions",
				ErrInput, mb.Index, mb.Positions, mb.FirstPosition, p.size(), 2*p.size())
	}
	own.Positions = 2 * each
	f.ownTokens = p.blocksOf(f.ownTokens[:0], mb.Tokens, mb.Positions)
	f.ownTargets = p.blocksOf(f.ownTargets[:0], mb.Targets, mb.Positions)
	own.Tokens, own.Targets = f.ownTokens, f.ownTargets
	return own, nil
}

// blocksOf adds this rank's blocks of ids [B, positions] to a list.
func (p ContextParallel) blocksOf(to, ids []int32, positions int) []int32 {
	each := positions / (2 * p.size())
	for first := 0; first+positions <= len(ids); first += positions {
		for _, block := range positionBlocks(p.rank(), p.size()) {
			to = append(to, ids[first+block*each:first+(block+1)*each]...)
		}
	}
	return to
}

// run is positions of a sequence that follow each other: rows [lo, hi) of each sequence of a tensor, which are the
// positions from first on.
type run struct{ lo, hi, first int }

// runs are this rank's positions, of those that the ranks of its tensor group have together.
func (c *pass) runs() []run {
	if c.stage.opts.Context.size() <= 1 {
		return []run{{0, c.mb.Positions, c.mb.FirstPosition}}
	}
	each := c.mb.Positions / 2
	group := c.stage.opts.Context
	at := positionBlocks(group.rank(), group.size())
	return []run{{0, each, at[0] * each}, {each, 2 * each, at[1] * each}}
}

// residualRuns are those of them that the residual stream has on this rank.
func (c *pass) residualRuns() (own []run) {
	from := c.firstPosition()
	to := from + c.positions()
	for _, r := range c.runs() {
		if lo, hi := max(r.lo, from), min(r.hi, to); lo < hi {
			own = append(own, run{lo - from, hi - from, r.first + lo - r.lo})
		}
	}
	return own
}

// eachRun calls f with the rows of t, [B, T, …], that are a run of positions: those of all sequences where there is only one.
func (c *pass) eachRun(t tensorops.Tensor, runs []run, f func(rows tensorops.Tensor, r run)) {
	if !t.Valid() { // after an error
		return
	}
	if len(runs) == 1 {
		f(t, runs[0])
		return
	}
	each := runs[len(runs)-1].hi
	for b := range c.mb.Sequences {
		for _, r := range runs {
			f(t.RowRange(b*each+r.lo, b*each+r.hi), r)
		}
	}
}
