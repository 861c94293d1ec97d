package runlog

import (
	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/telemetry"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// TraceEvery is the number of steps after which one is traced; 0: none is. all: every one is.
func TraceEvery(cfg *config.Config, all bool) int64 {
	if all {
		return 1
	}
	return int64(cfg.Run.TraceEvery)
}

// TraceWriter appends traces to the output folder's trace.jsonl, if the configuration
// asks for them; otherwise there is none.
func TraceWriter(p *plan.Plan, fsys checkpoint.FS, threads int) func(step int64, trace [][]event.ActionTime, clocks []event.Clock) error {
	every := int64(p.Config().Run.TraceEvery)
	if every == 0 {
		return nil
	}
	tokens := float64(p.Config().Batch.Microbatch*p.Config().Model.Context) / float64(p.Grid().Size(grid.Tensor)*p.Grid().Size(grid.Context))
	flops := p.ChunkFLOPs()
	for v := range flops {
		flops[v] *= tokens
	}
	return func(step int64, trace [][]event.ActionTime, clocks []event.Clock) error {
		if step%every != 0 {
			return nil // it was traced for whoever reads events
		}
		s := event.Timed(p.Table().Schedule, grid.OfStages(p.Grid(), trace), grid.OfStages(p.Grid(), clocks))
		if s == nil {
			return nil
		}
		s.Number, s.Table.Skips = int(step), p.Table().Skips
		return telemetry.WriteTrace(fsys, rundir.TraceFile, telemetry.TraceOf(s, flops, threads))
	}
}
