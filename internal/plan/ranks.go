package plan

import (
	"errors"
	"fmt"

	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/tensorops"
)

// RankBytes returns the host memory of each rank in bytes: its tensors, unless they are on a
// GPU, its part of the copies for a checkpoint, and the shadows that it holds. All ranks are assumed
// to have equal parts.
func (p *Plan) RankBytes(s Shadows) ([]int64, error) {
	held, err := p.HeldBytes(s)
	if err != nil {
		return nil, err
	}
	own, err := p.memo.ownBytes(p)
	if err != nil {
		return nil, err
	}
	for r := range held {
		held[r] += own[r]
	}
	return held, nil
}

// ownBytes is RankBytes without shadows.
func (p *Plan) ownBytes() ([]int64, error) {
	bytes, err := p.TensorBytes()
	if err != nil {
		return nil, err
	}
	copies, err := p.checkpointBytes()
	if err != nil {
		return nil, err
	}
	copies /= int64(len(bytes))
	for r := range bytes {
		if p.KindOf(r) == device.CUDA {
			bytes[r] = 0
		}
		bytes[r] += copies
	}
	return bytes, nil
}

// TensorBytes returns the tensor memory of each rank in bytes.
func (p *Plan) TensorBytes() ([]int64, error) {
	stages, err := p.MemoryBytes()
	if err != nil {
		return nil, err
	}
	bytes := make([]int64, p.grid.World())
	for r := range bytes {
		bytes[r] = stages[p.stageOf(r)]
	}
	return bytes, nil
}

// AllTensorBytes returns the tensor memory of all ranks in bytes.
func (p *Plan) AllTensorBytes() (sum int64, err error) {
	ranks, err := p.TensorBytes()
	for _, bytes := range ranks {
		sum += bytes
	}
	return sum, err
}

// KindOf returns the kind of a rank's device.
func (p *Plan) KindOf(rank int) string { return device.KindOf(p.cfg, p.stageOf(rank)) }

// gpuStage returns the first stage that computes on a GPU, if one does.
func (p *Plan) gpuStage() (stage int, found bool) {
	for stage := range p.cfg.Pipeline.Stages {
		if device.KindOf(p.cfg, stage) == device.CUDA {
			return stage, true
		}
	}
	return 0, false
}

// Grid returns the grid of ranks.
func (p *Plan) Grid() *grid.Grid { return p.grid }

// stageOf is the stage of a rank.
func (p *Plan) stageOf(rank int) int { return p.grid.Coordinates(rank)[grid.Pipeline] }

// ranksOf is the number of ranks of a stage.
func (p *Plan) ranksOf(stage int) int {
	return p.grid.TensorSize(stage) * p.grid.Size(grid.Copies)
}

// RankFLOPs returns the FLOPs of each rank's chunks in a forward pass for a token. For a frozen layer they are
// reduced by the share of a step that it saves.
func (p *Plan) RankFLOPs() []float64 {
	unit := func(_ int, t scheduler.Type) float64 { return scheduler.UnitCosts(0, scheduler.Action{Type: t}) }
	whole := unit(0, scheduler.F) + unit(0, scheduler.B)
	of, flops := p.withoutFrozen(unit), p.model.FLOPs(p.cfg.Model.Context)
	ofStage, layer := make([]float64, p.table.NumRanks()), 0
	for v, symbols := range p.layout.Chunks {
		for range symbols {
			ofStage[p.table.RankOf(v)] += flops[layer] * ((of(layer, scheduler.F) + of(layer, scheduler.B)) / whole)
			layer++
		}
	}
	work := make([]float64, p.grid.World())
	for r := range work {
		stage := p.stageOf(r)
		work[r] = ofStage[stage] / float64(p.grid.TensorSize(stage)*p.grid.Size(grid.Context))
	}
	return work
}

// CheckGPU rejects ranks whose tensors do not fit into the free memory of a GPU; 0: not known.
func (p *Plan) CheckGPU(ranks []int, freeBytes int64) error {
	var tensors float64 // bytes
	for _, r := range ranks {
		stage := p.stageOf(r)
		row := p.table.Ranks[stage]
		b, err := p.dryRun(stage, row[:min(len(row), p.dryActions(stage, usualActions))])
		if err != nil {
			return err
		}
		tensors += float64(b)
	}
	if freeBytes > 0 && tensors > float64(freeBytes) {
		return p.cfg.Errorf("model.hidden",
			"%w: ranks %d need %s of tensors, but the GPU has %s free; use more GPUs, or fewer stages on this one",
			ErrMemory, ranks, GiB(tensors), GiB(float64(freeBytes)))
	}
	return nil
}

// CheckRanks rejects ranks that do not fit into this machine's memory, with the copies of
// their parts of a checkpoint and the shadows of shadowed. All ranks are assumed to have equal parts.
func (p *Plan) CheckRanks(ranks, shadowed []int) error {
	return p.withFewerPacks(func() error { return p.checkRanks(ranks, shadowed) })
}

func (p *Plan) checkRanks(ranks, shadowed []int) error {
	var tensors float64 // bytes
	for _, r := range ranks {
		stage := p.stageOf(r)
		row := p.table.Ranks[stage]
		b, err := p.dryRun(stage, row[:min(len(row), p.dryActions(stage, usualActions))])
		if errors.Is(err, tensorops.ErrOutOfMemory) {
			return p.cfg.Errorf("model.hidden", "rank %d: %w on any machine: %v", r, ErrMemory, err)
		}
		if err != nil {
			return err
		}
		if p.KindOf(r) != device.CUDA {
			tensors += float64(b)
		}
	}
	var shadows float64 // bytes
	if len(shadowed) > 0 {
		each, err := p.ShadowBytes()
		if err != nil {
			return err
		}
		for _, r := range shadowed {
			shadows += float64(each[r])
		}
	}
	copied, err := p.checkpointBytes()
	if err != nil {
		return err
	}
	copies := float64(copied) * float64(len(ranks)) / float64(p.grid.World())
	parts, advice := fmt.Sprintf("%s of tensors, %s for the copy of a checkpoint", GiB(tensors), GiB(copies)), ""
	if shadows > 0 {
		parts += fmt.Sprintf(", %s for shadows of other ranks", GiB(shadows))
		advice = `, or cluster.shadow = "off"`
	}
	if free, need := device.HostFreeBytes(), tensors+copies+shadows; free > 0 && need > float64(free) {
		return p.cfg.Errorf("model.hidden",
			"%w: ranks %d need %s (%s), but the worker has %s free; use more workers, or fewer stages on this one%s",
			ErrMemory, ranks, GiB(need), parts, GiB(float64(free)), advice)
	}
	return nil
}
