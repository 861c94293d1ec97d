package plan

import (
	"errors"
	"fmt"

	"github.com/troupe-ml/troupe/internal/device"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// dryActions is how much of a rank's row is recorded to meet its peak: all of a row of
// usual length. Of a longer one, up to where it holds the most outputs, and then as many
// microbatches through every chunk and back as the row goes on repeating: a group, of
// which partial recomputation treats the next differently until its own window is
// through.
func (p *Plan) dryActions(rank int) int {
	const usual = 4096
	cycle := p.cfg.Pipeline.MicrobatchGroupSize
	if p.cfg.Pipeline.Recompute == "partial" {
		cycle *= p.table.ForwardsAhead(rank)
	}
	return max(usual, p.table.PeakAt(rank)+3*p.spec.Chunks*cycle)
}

// MemoryBytes is the tensor memory that each rank's pool takes, found by recording
// its row of the table without executing it.
func (p *Plan) MemoryBytes() ([]int64, error) {
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
func (p *Plan) dryRun(rank int, row []scheduler.Action) (bytes int64, err error) {
	dry := tensorops.NewDryStream()
	st, err := stages.NewStage(p.model, dry, p.chunks[rank], p.StageOptions(rank))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	if p.cfg.Pipeline.PostValidation {
		// The copies that it keeps are there from the end of the first step on.
		l := dry.NewList()
		st.SpeculativeApply(l, stages.Update{Count: 1})
		if err := tensorops.Run(dry, l); err != nil {
			return 0, err
		}
	}
	b, t := p.cfg.Batch.Microbatch, p.cfg.Model.Context
	ids := make([]int32, b*t)
	fields := p.model.Sample(b)
	recomputes, headLater := p.Recomputes(), p.HeadLater()
	for _, a := range row {
		l := dry.NewList()
		in, out := p.inputs(l, st, a), []tensorops.Tensor(nil)
		v, i := int(a.Chunk), int(a.Microbatch)
		switch a.Type {
		case scheduler.F:
			mb := stages.Microbatch{Step: 1, Index: i, Sequences: b, Positions: t, Tokens: ids, Targets: ids, Train: true}
			mb.Recompute = recomputes(rank, i)
			mb.HeadLater = headLater(i)
			for _, name := range st.Fields(v) {
				mb.Fields = append(mb.Fields, fields[name])
			}
			out = st.Forward(l, v, &mb, in...)
		case scheduler.I:
			out = st.InputGrad(l, v, i, in...)
		case scheduler.W:
			st.WeightGrad(l, v, i)
		case scheduler.B:
			out = st.Backward(l, v, i, in...)
		}
		for _, t := range out {
			l.Free(t)
		}
		if device.KindOf(p.cfg, rank) == device.CUDA {
			if err := p.checkCalls(rank, l.Ops()); err != nil {
				return 0, err
			}
		}
		if err := tensorops.Run(dry, l); err != nil {
			return 0, fmt.Errorf("%v: %w", a, err)
		}
	}
	l := dry.NewList()
	st.TiedGrads(l, len(p.EmbeddingRanks())-1)
	if err := tensorops.Run(dry, l); err != nil {
		return 0, err
	}
	return dry.Memory().Taken + p.underWay(rank), nil
}

// checkCalls refuses operations in Go on a GPU.
func (p *Plan) checkCalls(rank int, ops []tensorops.Op) error {
	key := "device.kind"
	if len(p.cfg.Device.Ranks) > 0 {
		key = "device.ranks"
	}
	for i := range ops {
		if o := &ops[i]; o.Kind == tensorops.KindCall {
			return p.cfg.Errorf(key, "rank %d is on a GPU, and part of %q is computed in Go, on the CPU alone; put the stages of such layers on \"cpu\" by device.ranks", rank, o.Call().Name)
		}
	}
	return nil
}

// inputs are what an action takes.
func (p *Plan) inputs(l *tensorops.List, st *stages.Stage, a scheduler.Action) (in []tensorops.Tensor) {
	if a.Type == scheduler.W {
		return nil
	}
	if !p.model.Config.Language() {
		ins, grads := p.model.Takes(p.all[a.Chunk])
		if a.Type != scheduler.F {
			ins = grads
		}
		for _, v := range ins {
			in = append(in, l.Alloc(p.shapes[v].DType, p.shapes[v].Dims...))
		}
		return in
	}
	if _, grads := p.model.Takes(p.all[a.Chunk]); a.Type != scheduler.F && len(grads) == 0 {
		return nil
	}
	depths, after := st.Depths(int(a.Chunk))
	if a.Type != scheduler.F {
		depths = after
	}
	if last := int32(p.table.NumChunks - 1); a.Type == scheduler.F && a.Chunk == 0 || a.Type != scheduler.F && a.Chunk == last {
		return nil
	}
	return []tensorops.Tensor{l.Alloc(st.EdgeType(), depths*p.cfg.Batch.Microbatch, p.cfg.Model.Context, p.model.Config.Hidden)}
}

// SkipBytes is how many tensors a skip edge carries for a microbatch, and their size.
func (p *Plan) SkipBytes(skip int) (tensors int, bytes int64) {
	s := p.table.Skips[skip]
	for i, v := range p.model.Gives(p.all[s.From]) {
		if p.routes[s.From].Outs[i].Chunk == s.To {
			tensors, bytes = tensors+1, bytes+p.shapes[v].Bytes()
		}
	}
	return tensors, bytes
}

// underWay is what a rank's outputs take that go to chunks further on, where they wait for
// long.
func (p *Plan) underWay(rank int) (bytes int64) {
	for k, s := range p.table.Skips {
		if p.table.RankOf(s.From) != rank {
			continue
		}
		_, each := p.SkipBytes(k)
		bytes += int64(p.report.Credits.SkipForward[k]) * each
	}
	return bytes
}

// CheckMemory refuses a model that does not fit: its tensors on a GPU whose free
// memory is known, and in this machine's memory those of the other ranks, and the copy that a
// checkpoint is written from.
//
// A copy that doesn't fit is no reason where all tensors are in this machine's memory: inPlace says that
// checkpoints are to be written from the tensors themselves, and why.
func (p *Plan) CheckMemory(gpuFree int64) (inPlace string, err error) {
	ranks, err := p.MemoryBytes()
	if errors.Is(err, tensorops.ErrOutOfMemory) {
		return "", p.cfg.Errorf("model.hidden", "%w on any machine: %v", ErrMemory, err)
	}
	if err != nil {
		return "", err
	}
	var tensors, onGPU float64 // bytes, and no sum of them is too large
	for r, b := range ranks {
		if device.KindOf(p.cfg, r) == device.CUDA {
			onGPU += float64(b)
		} else {
			tensors += float64(b)
		}
	}
	const advice = "make the model, batch.microbatch or the microbatches in flight smaller, or set pipeline.recompute"
	parameters := p.model.Parameters()
	if gpuFree > 0 && onGPU > float64(gpuFree) {
		return "", p.cfg.Errorf("model.hidden", "%w: the model of %d parameters needs %s of tensors on the GPU, which has %s free; %s",
			ErrMemory, parameters, GiB(onGPU), GiB(float64(gpuFree)), advice)
	}
	copyBytes := float64(p.checkpointBytes())
	need := tensors + copyBytes
	free := float64(device.HostFreeBytes())
	if free > 0 && need > free && tensors <= free && onGPU == 0 {
		return fmt.Sprintf("the copy of %s that checkpoints are written from doesn't fit beside %s of tensors, this machine has %s free: they are written from the tensors themselves, and training waits meanwhile",
			GiB(copyBytes), GiB(tensors), GiB(free)), nil
	}
	if free > 0 && need > free {
		return "", p.cfg.Errorf("model.hidden", "%w: the model of %d parameters needs %s (%s of tensors, %s to copy a checkpoint from), this machine has %s free; %s",
			ErrMemory, parameters, GiB(need), GiB(tensors), GiB(copyBytes), GiB(free), advice)
	}
	return "", nil
}

// checkpointBytes is the host's memory that a copy of the weights with their optimizer
// state takes.
func (p *Plan) checkpointBytes() int64 {
	return 4 * (p.model.Parameters() + p.model.Trained()*int64(len(Optimizer(p.cfg).Parts())))
}

func GiB(bytes float64) string { return fmt.Sprintf("%.1f GiB", bytes/(1<<30)) }

// AllOnHost reports whether the host can address the tensors of every rank.
func (p *Plan) AllOnHost() bool {
	for r := range p.table.NumRanks() {
		if device.KindOf(p.cfg, r) == device.CUDA {
			return false
		}
	}
	return true
}
