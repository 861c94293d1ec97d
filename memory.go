package troupe

import (
	"errors"
	"fmt"

	"github.com/troupe-ml/troupe/internal/sysinfo"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// dryActions is how much of a rank's row is recorded to meet its peak: all of a row of
// usual length. Of a longer one, up to where it holds the most outputs, and then as many
// microbatches through every chunk and back as the row goes on repeating: a group, of
// which partial recomputation treats the next differently until its own window is
// through.
func (p *plan) dryActions(rank int) int {
	const usual = 4096
	cycle := p.cfg.Pipeline.Group
	if p.cfg.Pipeline.Recompute == "partial" {
		cycle *= p.table.ForwardsAhead(rank)
	}
	return max(usual, p.table.PeakAt(rank)+3*p.spec.Chunks*cycle)
}

// memoryBytes is the tensor memory that each rank's pool takes, found by recording
// its row of the table without executing it.
func (p *plan) memoryBytes() ([]int64, error) {
	bytes := make([]int64, p.table.NumRanks())
	for r, row := range p.table.Ranks {
		var err error
		if bytes[r], err = p.dryRun(r, row[:min(len(row), p.dryActions(r))]); err != nil {
			return nil, fmt.Errorf("rank %d: %w", r, err)
		}
	}
	return bytes, nil
}

// dryRun records a row, as a stage actor does, and tells what its pool holds then.
func (p *plan) dryRun(rank int, row []scheduler.Action) (bytes int64, err error) {
	dry := tensorops.NewDryStream()
	st, err := stages.NewStage(p.model, dry, p.chunks[rank], p.stageOptions(rank))
	if err != nil {
		return 0, err
	}
	if p.cfg.Pipeline.PostValidation {
		// The copies that it keeps are there from the end of the first step on.
		l := dry.NewList()
		st.Presume(l, stages.Update{Count: 1})
		if err := tensorops.Run(dry, l); err != nil {
			return 0, err
		}
	}
	b, t, last := p.cfg.Batch.Microbatch, p.cfg.Model.Context, int32(p.table.NumStages-1)
	ids := make([]int32, b*t)
	recompute, headLater := p.recompute(), p.headLater()
	for _, a := range row {
		l := dry.NewList()
		var in, out tensorops.Tensor
		needs := a.Type == scheduler.F && a.Stage > 0 || (a.Type == scheduler.B || a.Type == scheduler.I) && a.Stage < last
		if needs {
			depths, after := st.Depths(int(a.Stage))
			if a.Type != scheduler.F {
				depths = after
			}
			in = l.Alloc(tensorops.Float32, depths*b, t, p.model.Config.Hidden)
		}
		v, i := int(a.Stage), int(a.Microbatch)
		switch a.Type {
		case scheduler.F:
			mb := stages.Microbatch{Step: 1, Index: i, Sequences: b, Positions: t, Tokens: ids, Targets: ids, Train: true}
			mb.Recompute = recompute != nil && recompute(rank, i)
			mb.HeadLater = headLater != nil && headLater(i)
			out = st.Forward(l, v, &mb, in)
		case scheduler.I:
			out = st.InputGrad(l, v, i, in)
		case scheduler.W:
			st.WeightGrad(l, v, i)
		case scheduler.B:
			out = st.Backward(l, v, i, in)
		}
		l.Free(out)
		if err := tensorops.Run(dry, l); err != nil {
			return 0, fmt.Errorf("%v: %w", a, err)
		}
	}
	l := dry.NewList()
	st.TiedGrads(l, len(p.embeddingRanks())-1)
	if err := tensorops.Run(dry, l); err != nil {
		return 0, err
	}
	return dry.Memory().Taken, nil
}

// checkMemory refuses a model that does not fit: its tensors on a GPU whose free
// memory is known, and in this machine's memory those of the other ranks, and the copy that a
// checkpoint is written from.
func (p *plan) checkMemory(gpuFree int64) error {
	ranks, err := p.memoryBytes()
	if errors.Is(err, tensorops.ErrOutOfMemory) {
		return p.cfg.Errorf("model.hidden", "%w on any machine: %v", ErrMemory, err)
	}
	if err != nil {
		return err
	}
	var tensors, onGPU float64 // bytes, and no sum of them is too large
	for r, b := range ranks {
		if kindOf(p.cfg, r) == kindCUDA {
			onGPU += float64(b)
		} else {
			tensors += float64(b)
		}
	}
	const advice = "make the model, batch.microbatch or the microbatches in flight smaller, or set pipeline.recompute"
	parameters := p.model.Config.Parameters()
	if gpuFree > 0 && onGPU > float64(gpuFree) {
		return p.cfg.Errorf("model.hidden", "%w: the model of %d parameters needs %s of tensors on the GPU, which has %s free; %s",
			ErrMemory, parameters, gib(onGPU), gib(float64(gpuFree)), advice)
	}
	copyBytes := float64(p.checkpointBytes(parameters))
	need := tensors + copyBytes
	if free := freeMemory(); free > 0 && need > float64(free) {
		return p.cfg.Errorf("model.hidden", "%w: the model of %d parameters needs %s (%s of tensors, %s to copy a checkpoint from), this machine has %s free; %s",
			ErrMemory, parameters, gib(need), gib(tensors), gib(copyBytes), gib(float64(free)), advice)
	}
	return nil
}

// checkpointBytes is the host's memory that a copy of so many weights with their optimizer
// state takes.
func (p *plan) checkpointBytes(parameters int64) int64 {
	return 4 * parameters * int64(1+len(optimizer(p.cfg).Parts()))
}

func gib(bytes float64) string { return fmt.Sprintf("%.1f GiB", bytes/(1<<30)) }

// freeMemory is replaced in tests.
var freeMemory = sysinfo.MemoryBytes
