package troupe

import (
	"fmt"

	"github.com/troupe-ml/troupe/internal/sysinfo"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// dryActions bounds the actions that a rank's dry run records: the peak comes
// with the warm-up, and a longer row repeats itself.
const dryActions = 4096

// memoryBytes is the tensor memory that each rank takes at its peak, found by
// recording its row of the table without executing it.
func (p *plan) memoryBytes() ([]int64, error) {
	peaks := make([]int64, p.table.NumRanks())
	for r := range peaks {
		dry := tensorops.NewDryStream()
		st, err := stages.NewStage(p.model, dry, p.chunks[r], stages.Options{Optimizer: optimizer(p.cfg)})
		if err != nil {
			return nil, fmt.Errorf("rank %d: %w", r, err)
		}
		if err := p.dryRun(dry, st, r); err != nil {
			return nil, fmt.Errorf("rank %d: %w", r, err)
		}
		peaks[r] = dry.Memory().Peak
	}
	return peaks, nil
}

func (p *plan) dryRun(dry *tensorops.DryStream, st *stages.Stage, rank int) error {
	b, t, last := p.cfg.Batch.Microbatch, p.cfg.Model.Context, int32(p.table.NumStages-1)
	ids := make([]int32, b*t)
	recompute := p.recompute()
	row := p.table.Ranks[rank]
	for _, a := range row[:min(len(row), dryActions)] {
		l := dry.NewList()
		var in, out tensorops.Tensor
		needs := a.Type == scheduler.F && a.Stage > 0 || (a.Type == scheduler.B || a.Type == scheduler.I) && a.Stage < last
		if needs {
			in = l.Alloc(tensorops.Float32, b, t, p.model.Config.Hidden)
		}
		v, i := int(a.Stage), int(a.Microbatch)
		switch a.Type {
		case scheduler.F:
			mb := stages.Microbatch{Step: 1, Index: i, Sequences: b, Positions: t, Tokens: ids, Targets: ids, Train: true}
			mb.Recompute = recompute != nil && recompute(rank, i)
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
			return fmt.Errorf("%v: %w", a, err)
		}
	}
	return nil
}

// checkMemory refuses a model that does not fit: its tensors, and the copy that
// a checkpoint is written from.
func (p *plan) checkMemory(available int64) error {
	peaks, err := p.memoryBytes()
	if err != nil {
		return err
	}
	var tensors int64
	for _, b := range peaks {
		tensors += b
	}
	parameters := p.model.Config.Parameters()
	copyBytes := parameters * 4 * int64(1+len(optimizer(p.cfg).Parts()))
	need := tensors + copyBytes
	if available > 0 && need > available {
		return p.cfg.Errorf("model.hidden", "%w: the model of %d parameters needs %s (%s of tensors at the peak, %s to copy a checkpoint from), this machine has %s free; make the model, batch.microbatch or the microbatches in flight smaller, or set pipeline.recompute",
			ErrMemory, parameters, gib(need), gib(tensors), gib(copyBytes), gib(available))
	}
	return nil
}

func gib(bytes int64) string { return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30)) }

// freeMemory is replaced in tests.
var freeMemory = sysinfo.MemoryBytes
