package ui

import (
	"errors"
	"io/fs"
	"time"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/show/draw"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/telemetry"
)

// config returns the run's configuration; nil: its folder is not readable here.
func (e *entry) config() *config.Config {
	f := e.folder()
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cfg
}

// stagesOf returns the lanes of ranks in a drawing. Of a grid one rank of each stage has a lane, and the others have
// −1.
func stagesOf(cfg *config.Config, ranks int) []int {
	lanes := make([]int, ranks)
	for r := range lanes {
		lanes[r] = r
	}
	g := gridOf(cfg, ranks)
	if g == nil {
		return lanes
	}
	for r := range lanes {
		lanes[r] = -1
	}
	for stage := range g.Size(grid.Pipeline) {
		lanes[g.Rank(grid.Coordinates{grid.Pipeline: stage})] = stage
	}
	return lanes
}

// stageOf returns the stage of a rank.
func stageOf(cfg *config.Config, rank, ranks int) int {
	g := gridOf(cfg, ranks)
	if g == nil || rank < 0 {
		return rank
	}
	return g.Coordinates(rank)[grid.Pipeline]
}

// lastTraced returns the newest recorded step.
func (e *entry) lastTraced() (int, bool) {
	if e.live != nil {
		if s, ok := e.live.lastTraced(); ok {
			return s.Step, true
		}
	}
	if f := e.folder(); f != nil {
		f.refresh()
		return f.lastTraced()
	}
	return 0, false
}

// tracedSteps returns all recorded steps of the files.
func (e *entry) tracedSteps() (steps []int) {
	steps = []int{}
	if f := e.folder(); f != nil {
		f.refresh()
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, s := range f.in.Traced {
			steps = append(steps, s.Step)
		}
	}
	return steps
}

// picture draws a step; step < 0: the newest. It keeps the last drawings. It makes one at a time, and those of a live
// run so seldom that training gets most of the time.
func (e *entry) picture(step int) (*picture, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	newest, ok := e.lastTraced()
	if !ok {
		return nil, errNoTrace
	}
	if step < 0 {
		step = newest
	}
	for _, p := range e.pictures {
		if p.step == step {
			return p, nil
		}
	}
	recorded := false
	traced, err := (*scheduler.Step)(nil), errNoTrace
	if e.live != nil {
		if s, ok := e.live.lastTraced(); ok && s.Step == step {
			if n := len(e.pictures); n > 0 && step == newest && time.Since(e.analysed) < analysisShare*e.took {
				return e.pictures[n-1], nil
			}
			recorded = true
			e.live.mu.Lock()
			schedule := e.live.info.Schedule
			e.live.mu.Unlock()
			e.analysed = time.Now()
			traced, err = liveStep(s, e.config(), schedule)
		}
	}
	if f := e.folder(); f != nil && !recorded {
		e.analysed = time.Now()
		var t telemetry.Trace
		if t, err = f.trace(step); err == nil {
			if traced, err = t.Measured(f.fsys.Path(rundir.TraceFile)); err == nil {
				traced.StepMS = f.stepMS(step)
			}
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = errNoTrace
	}
	if err != nil {
		return nil, err
	}
	drawing, err := draw.ForBrowser(traced)
	if err != nil {
		return nil, err
	}
	e.took = time.Since(e.analysed)
	if len(e.pictures) >= limitPictures {
		e.pictures = e.pictures[1:]
	}
	p := &picture{drawing, step}
	e.pictures = append(e.pictures, p)
	return p, nil
}
