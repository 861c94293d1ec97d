package plan

import (
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cuda"
)

// scratch is the memory that a rank's kernels take on a GPU beside its tensors. The methods of nil
// are those of a rank on the CPU, which takes none.
type scratch struct {
	dry  *cuda.Dry
	seen map[action]int
}

// action is what passes that need the same memory have in common.
type action struct {
	of    scheduler.Type
	chunk int32
}

// scratchPasses is how many passes of a kind through a chunk are launched: the second has what the
// first did not begin with, such as gradients to add to, and all others are like it.
const scratchPasses = 2

func (p *Plan) newScratch(rank int) *scratch {
	if device.KindOf(p.cfg, rank) != device.CUDA {
		return nil
	}
	return &scratch{cuda.NewDry(p.kernels), make(map[action]int)}
}

// launch counts what an action's operations take.
func (s *scratch) launch(a scheduler.Action, ops []tensorops.Op) {
	k := action{a.Type, a.Chunk}
	if s.seen[k]++; s.seen[k] <= scratchPasses {
		s.dry.Launch(ops)
	}
}

func (s *scratch) bytes() int64 {
	if s == nil {
		return 0
	}
	return s.dry.Bytes()
}
