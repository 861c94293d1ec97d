package ui

import (
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/show/draw"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// errNoTrace: nothing is known of when the actions of a step ran.
var errNoTrace = rundir.ErrNoTrace

// picture is a step of the pipeline, ready to be drawn.
type picture struct {
	*draw.Drawing
	step int
}

// liveStep is what a live run has told of a step. Of a grid one rank of each stage is taken, as
// trace.jsonl has it.
func liveStep(e *event.StepEvent, cfg *config.Config, schedule string) (*scheduler.Step, error) {
	g := gridOf(cfg, len(e.Trace))
	s := event.Timed(schedule, grid.OfStages(g, e.Trace), grid.OfStages(g, e.Clocks))
	if s == nil {
		return nil, errNoTrace
	}
	s.Number = e.Step
	if e.StepMS != nil {
		s.StepMS = *e.StepMS
	}
	if report, err := scheduler.Check(s.Table); err == nil { // else ForBrowser says what it can
		s.Credits = &report.Credits
	}
	return s, nil
}

// gridOf is the grid of a run's ranks; nil: a rank is a stage, or it is not known.
func gridOf(cfg *config.Config, ranks int) *grid.Grid {
	if cfg == nil || ranks == cfg.Pipeline.Stages {
		return nil
	}
	g, err := grid.New(cfg.GridSizes())
	if err != nil || g.World() != ranks {
		return nil
	}
	return g
}
