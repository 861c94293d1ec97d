package stages

import "github.com/troupe-ml/troupe/tensorops"

// DataParallel describes the group of ranks that share a step's sequences. Each rank of the group
// has the same layers and computes different microbatches. Before the update, their gradients are
// added in the order of the ranks, and all make the same update. With the zero value the stage
// computes all microbatches.
//
// The sum over ranks is rounded in another order than the sum over microbatches. So the size of the
// group changes the last bits of the result; they are the same in every run.
type DataParallel struct {
	Group tensorops.Group
	// Zero says what the ranks share besides the microbatches. With 1, each rank keeps the
	// optimizer state of its part of every parameter, updates that part, and receives the other
	// parts (ZeRO-1). With 2, it also keeps only its part of the gradients, from the step's last
	// microbatch on (ZeRO-2). With 3, it also keeps only its part of the weights, and gathers a
	// layer's weights while it computes (ZeRO-3). Then all ranks must record the same passes in the
	// same order. Zero changes no bit of the result.
	Zero int
	// WholeGrads keeps gradients whole with ZeRO-3, if sharing them would save nothing.
	WholeGrads bool
	// HoldWeights keeps gathered weights until the stage turns to another chunk or updates them. So
	// consecutive passes of a chunk gather once.
	HoldWeights bool
}

// splits reports whether each rank has a part of the optimizer's state.
func (d DataParallel) splits() bool { return d.Zero > 0 && d.size() > 1 }

// splitsGrads reports whether each rank has a part of the gradients.
func (d DataParallel) splitsGrads() bool { return d.Zero > 1 && !d.WholeGrads && d.size() > 1 }

// splitsWeights reports whether each rank has a part of the weights.
func (d DataParallel) splitsWeights() bool { return d.Zero > 2 && d.size() > 1 }

func (d DataParallel) size() int {
	if d.Group == nil {
		return 1
	}
	return d.Group.Size()
}

func (d DataParallel) rank() int {
	if d.Group == nil {
		return 0
	}
	return d.Group.Rank()
}

// ownPart returns the range [from, to) of a parameter's elements whose norm this rank computes, and
// that it updates under ZeRO. Each rank has its share of each parameter, so the sum of all norms
// does not depend on where the parameter is. Without replicas the range covers all elements.
func (s *Stage) ownPart(p *Param) (from, to int) {
	rank, _ := s.copyOf(p)
	return s.partOf(p, rank)
}

func (s *Stage) partOf(p *Param, rank int) (from, to int) {
	if p.experts && !s.opts.Data.splits() && (s.divided(p) || !s.blockedState()) {
		return s.expertPart(p, rank)
	}
	n, each := p.Len(), s.partLen(p)
	return min(rank*each, n), min((rank+1)*each, n)
}

// partLen returns the number of elements of a part; parts at a parameter's end may have fewer, or
// none. Blocks of the optimizer state are whole in a part, also without ZeRO: the norms have the same
// parts.
func (s *Stage) partLen(p *Param) int {
	size := s.opts.Data.size()
	each := (p.Len() + size - 1) / size
	if s.blockedState() {
		each = tensorops.StateScales(each) * tensorops.StateBlock
	}
	return each
}

// blockedState reports whether the numbers of the optimizer state have a scale for each block.
func (s *Stage) blockedState() bool { return s.opts.Optimizer.State == tensorops.Uint8 }
