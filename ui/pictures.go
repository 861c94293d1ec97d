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

// config is the run's, where its folder is here; else nil.
func (e *entry) config() *config.Config {
	f := e.folder()
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cfg
}

// stagesOf are the lanes of ranks in a drawing: of a grid's, one rank of each stage has one, and
// the others −1.
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

// stageOf is the stage of a rank.
func stageOf(cfg *config.Config, rank, ranks int) int {
	g := gridOf(cfg, ranks)
	if g == nil || rank < 0 {
		return rank
	}
	return g.Coordinates(rank)[grid.Pipeline]
}

// lastTraced is the newest step whose actions are known.
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

// tracedSteps are all of them, of the files.
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

// picture draws a step; step < 0: the newest. Those that were asked for last are kept. One is drawn
// at a time, and of a live run no more often than that most of the time is left to the training.
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
