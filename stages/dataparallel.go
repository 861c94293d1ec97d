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
	//
	// Of the experts of an expert group, the ranks of ExpertParallel.Copies share these things instead: only they have the same ones.
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
