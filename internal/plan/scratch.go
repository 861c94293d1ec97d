package plan

import (
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cuda"
)

// scratch is the memory that a rank's kernels need on a GPU besides its tensors. nil is that of a rank on the CPU, which needs
// none.
type scratch struct {
	dry  *cuda.Dry
	seen map[action]int
}

// action identifies passes that need the same memory.
type action struct {
	of    scheduler.Type
	chunk int32
}

// scratchPasses is the number of passes of a kind through a chunk that are launched. The second one may need more than
// the first, such as gradients to add to; all others are like the second.
const scratchPasses = 2

func (p *Plan) newScratch(rank int) *scratch {
	if device.KindOf(p.cfg, rank) != device.CUDA {
		return nil
	}
	return &scratch{cuda.NewDry(p.kernels), make(map[action]int)}
}

// launch counts the memory of an action's operations.
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
