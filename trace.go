package troupe

import (
	"time"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/telemetry"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// traceEvery is the number of steps after which one is traced; 0: none is.
func traceEvery(cfg *config.Config, o Options) int64 {
	if o.Trace {
		return 1
	}
	return int64(cfg.Run.TraceEvery)
}

// traceWriter appends traces to the output folder's trace.jsonl, if the configuration
// asks for them; otherwise there is none.
func traceWriter(p *plan.Plan, fsys checkpoint.FS, threads int) func(step int64, trace [][]event.ActionTime, clocks []event.Clock) error {
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
			return nil // Options.Trace asked for it
		}
		trace, clocks = firstPipeline(p.Grid(), trace), firstPipeline(p.Grid(), clocks)
		t := telemetry.Trace{Step: int(step), Schedule: p.Table().Schedule, ChunkFLOPs: flops, Threads: threads, MS: make([][][2]float64, len(trace))}
		var begin time.Time
		for _, row := range trace {
			if len(row) > 0 && (begin.IsZero() || row[0].Start.Before(begin)) {
				begin = row[0].Start
			}
		}
		ms := func(at time.Time) float64 { return float64(at.Sub(begin)) / float64(time.Millisecond) }
		table := scheduler.Table{Ranks: make([][]scheduler.Action, len(trace))}
		for r, row := range trace {
			for _, a := range row {
				table.Ranks[r] = append(table.Ranks[r], a.Action)
				t.MS[r] = append(t.MS[r], [2]float64{ms(a.Start), ms(a.End)})
			}
		}
		for _, c := range clocks {
			t.Clocks = append(t.Clocks, telemetry.Clock{Host: c.Process, OffsetMS: float64(c.Ahead) / float64(time.Millisecond), UncertaintyMS: float64(c.Within) / float64(time.Millisecond)})
		}
		t.Table = table.CSV()
		for _, s := range p.Table().Skips {
			t.Skips = append(t.Skips, [2]int{s.From, s.To})
		}
		return telemetry.WriteTrace(fsys, rundir.TraceFile, t)
	}
}

// firstPipeline is what is known of one rank of each stage: of the first replica, and of tensor groups the first
// rank. The others have the same table.
func firstPipeline[T any](g *grid.Grid, ofRanks []T) []T {
	if len(ofRanks) == 0 {
		return nil
	}
	first := make([]T, g.Size(grid.Pipeline))
	for stage := range first {
		first[stage] = ofRanks[g.Rank(grid.Coordinates{grid.Pipeline: stage})]
	}
	return first
}
