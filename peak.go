package troupe

import (
	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/tensorops"
)

// peakTokens is how many tokens a second would take all of the processor's operations: see
// telemetry.Record.PeakPct. 0: not known.
func (r *Run) peakTokens(cfg *config.Config, p *plan.Plan) float64 {
	flops := p.TokenFLOPs()
	if r.computers.set == nil || flops <= 0 {
		return 0
	}
	for _, d := range r.computers.set.Opened() {
		if d.Name() != device.CPU {
			return 0
		}
	}
	if r.peakFLOPS == 0 {
		dtype := tensorops.Float32
		if cfg.Device.DType == "bfloat16" {
			dtype = tensorops.BFloat16
		}
		peak, err := device.PeakFLOPS(device.Options{Threads: cfg.Device.Threads, Kernels: cfg.Device.Kernels}, dtype)
		if err != nil {
			return 0 // a figure is missing, and no run fails for want of it
		}
		r.peakFLOPS = peak
	}
	return r.peakFLOPS / flops
}

// rankMemory gives the most tensor memory that each rank has taken at a time; nil: it is not known.
func (r *Run) rankMemory(spec *actors.Spec, ranks int) func() []int64 {
	c, names := r.computers, make([]string, ranks)
	for rank := range names {
		names[rank] = spec.StageName(rank)
	}
	return func() []int64 {
		of := c.memoryByStage()
		switch {
		case of == nil && c.ofRanks != nil:
			return c.ofRanks()
		case of == nil:
			return nil
		}
		all := make([]int64, ranks)
		for rank, name := range names {
			all[rank] = of[name]
		}
		return all
	}
}
