package plan

import (
	"errors"

	"github.com/troupe-ml/troupe/internal/device"
	"github.com/troupe-ml/troupe/tensorops"
)

// RankBytes is the host's memory that each rank takes: its tensors, unless they are on a
// GPU, and its part of the copies that a checkpoint is sent from, which is taken to be as
// large for every rank.
func (p *Plan) RankBytes() ([]int64, error) {
	bytes, err := p.MemoryBytes()
	if err != nil {
		return nil, err
	}
	copies := p.checkpointBytes() / int64(len(bytes))
	for r := range bytes {
		if device.KindOf(p.cfg, r) == device.CUDA {
			bytes[r] = 0
		}
		bytes[r] += copies
	}
	return bytes, nil
}

// RankFLOPs is the work of each rank's chunks in a forward of a token.
func (p *Plan) RankFLOPs() []float64 {
	work := make([]float64, p.table.NumRanks())
	for v, flops := range p.ChunkFLOPs() {
		work[p.table.RankOf(v)] += flops
	}
	return work
}

// CheckGPU refuses ranks whose tensors do not fit a GPU that has so much free; 0: not known.
func (p *Plan) CheckGPU(ranks []int, freeBytes int64) error {
	var tensors float64 // bytes
	for _, r := range ranks {
		row := p.table.Ranks[r]
		b, err := p.dryRun(r, row[:min(len(row), p.dryActions(r))])
		if err != nil {
			return err
		}
		tensors += float64(b)
	}
	if freeBytes > 0 && tensors > float64(freeBytes) {
		return p.cfg.Errorf("model.hidden", "%w: ranks %d need %s of tensors on a GPU that has %s free; use more GPUs, or fewer stages on this one",
			ErrMemory, ranks, GiB(tensors), GiB(float64(freeBytes)))
	}
	return nil
}

// CheckRanks refuses ranks that do not fit this machine's memory, with the copies that
// their part of a checkpoint is sent from, which is taken to be as large for every rank.
func (p *Plan) CheckRanks(ranks []int) error {
	var tensors float64 // bytes
	for _, r := range ranks {
		row := p.table.Ranks[r]
		b, err := p.dryRun(r, row[:min(len(row), p.dryActions(r))])
		if errors.Is(err, tensorops.ErrOutOfMemory) {
			return p.cfg.Errorf("model.hidden", "rank %d: %w on any machine: %v", r, ErrMemory, err)
		}
		if err != nil {
			return err
		}
		if device.KindOf(p.cfg, r) != device.CUDA {
			tensors += float64(b)
		}
	}
	copies := float64(p.checkpointBytes()) * float64(len(ranks)) / float64(p.table.NumRanks())
	if free := device.HostFreeBytes(); free > 0 && tensors+copies > float64(free) {
		return p.cfg.Errorf("model.hidden", "%w: ranks %d need %s (%s of tensors, %s to copy a checkpoint from), and the worker has %s free; use more workers, or fewer stages on this one",
			ErrMemory, ranks, GiB(tensors+copies), GiB(tensors), GiB(copies), GiB(float64(free)))
	}
	return nil
}
