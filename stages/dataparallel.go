package stages

import "github.com/troupe-ml/troupe/tensorops"

// DataParallel says with whom a stage shares a step's sequences: each rank of the group has the
// same layers and computes other microbatches, and their gradients are added in the order of the ranks before
// the update, which all of them make alike. The zero value: the stage computes all.
//
// The sum over ranks is rounded in another order than that over microbatches, so that the size of
// the group shows in the last bits. It is the same from run to run.
type DataParallel struct {
	Group tensorops.Group
	// Zero says what the ranks share beside the microbatches. 1: each has the optimizer's state of its
	// part of every parameter, updates that part, and gets the others' (ZeRO-1). 2: of the gradients too
	// it keeps its part alone, from the step's last microbatch on (ZeRO-2). 3: and of the weights, of which
	// a layer's are gathered while it computes (ZeRO-3); then all must record the same passes in the same order. No
	// bit of what is trained depends on it.
	Zero int
	// WholeGrads leaves gradients whole with ZeRO-3, where sharing them would save nothing.
	WholeGrads bool
	// HoldWeights keeps gathered weights until the stage turns to another chunk, or updates them: a chunk's
	// passes that follow each other gather once.
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

// ownPart is the range of a parameter's elements whose norm this rank takes, and with ZeRO those that
// it updates: its share of each parameter, so that the sum of all is the same wherever the parameter is.
// Without replicas it is all of them.
func (s *Stage) ownPart(p *Param) (from, to int) { return s.partOf(p, s.opts.Data.rank()) }

func (s *Stage) partOf(p *Param, rank int) (from, to int) {
	n, each := p.Len(), s.partLen(p)
	return min(rank*each, n), min((rank+1)*each, n)
}

// partLen is how many elements a part has, but for those at a parameter's end, which may have fewer or none.
func (s *Stage) partLen(p *Param) int {
	size := s.opts.Data.size()
	return (p.Len() + size - 1) / size
}
