package ui

import (
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/show/draw"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// errNoTrace means that a step was not recorded.
var errNoTrace = rundir.ErrNoTrace

// picture is a step of the pipeline, ready to be drawn.
type picture struct {
	*draw.Drawing
	step int
}

// liveStep returns a recorded step of a live run. Of a grid it takes one rank of each stage, as trace.jsonl does.
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
	if report, err := scheduler.Check(s.Table); err == nil { // else ForBrowser reports the problem
		s.Credits = &report.Credits
	}
	return s, nil
}

// gridOf returns the grid of a run's ranks; nil: each rank is a stage, or the grid is not known.
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
