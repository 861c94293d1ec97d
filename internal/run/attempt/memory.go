package attempt

import (
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cuda"
)

// peakTokens is how many tokens a second would take all of the processor's operations: see
// telemetry.Record.PeakPct. 0: not known.
func (a *Attempt) peakTokens() float64 {
	flops := a.plan.TokenFLOPs()
	if a.devices.set == nil || flops <= 0 {
		return 0
	}
	for _, d := range a.devices.set.Opened() {
		if d.Name() != device.CPU {
			return 0
		}
	}
	dtype := tensorops.Float32
	if a.cfg.Device.DType == "bfloat16" {
		dtype = tensorops.BFloat16
	}
	peak, err := device.PeakFLOPS(device.Options{Threads: a.cfg.Device.Threads, Kernels: a.cfg.Device.Kernels}, dtype)
	if err != nil {
		return 0 // a figure is missing, and no run fails for want of it
	}
	return peak / flops
}

// rankMemory gives the most tensor memory that each rank has taken at a time; nil: it is not known.
func (a *Attempt) rankMemory() func() []int64 {
	d, names := a.devices, make([]string, a.plan.Grid().World())
	for rank := range names {
		names[rank] = a.spec.StageName(rank)
	}
	return func() []int64 {
		of := d.memoryByStage()
		switch {
		case of == nil && d.ofRanks != nil:
			return d.ofRanks()
		case of == nil:
			return nil
		}
		all := make([]int64, len(names))
		for rank, name := range names {
			all[rank] = of[name]
		}
		return all
	}
}

// RankMemory is the most tensor memory that each rank has taken at a time, in bytes, as far as other
// processes have told of theirs; nil where that is not known.
func (a *Attempt) RankMemory() []int64 { return a.memory() }

// StageMemory is that of each stage by its name in a status; nil where other processes have them.
func (a *Attempt) StageMemory() map[string]int64 { return a.devices.memoryByStage() }

// Memory is the tensor memory of the devices of a kind; zeros if no rank is on one.
func (a *Attempt) Memory(kind string) tensorops.MemoryStats {
	if a.devices.set == nil {
		return tensorops.MemoryStats{}
	}
	return a.devices.set.Memory(kind)
}

// GPUWork tells what each GPU of this process has put into its streams, and how.
func (a *Attempt) GPUWork() []cuda.Work {
	if a.devices.set == nil {
		return nil
	}
	return a.devices.set.Work()
}
