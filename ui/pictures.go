package ui

import (
	"errors"
	"io/fs"
	"time"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/internal/run/rundir"
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
	if cfg == nil || ranks == cfg.Pipeline.Stages {
		return lanes
	}
	g, err := grid.New(cfg.GridSizes())
	if err != nil || g.World() != ranks {
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
	if cfg == nil || ranks == cfg.Pipeline.Stages || rank < 0 {
		return rank
	}
	g, err := grid.New(cfg.GridSizes())
	if err != nil || g.World() != ranks {
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
		for _, s := range f.steps {
			steps = append(steps, s.step)
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
	m, err := (*measured)(nil), errNoTrace
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
			m, err = fromEvent(s.Step, s.Trace, s.Clocks, e.config(), schedule)
			if err == nil && s.StepMS != nil {
				m.stepMS = *s.StepMS
			}
		}
	}
	if f := e.folder(); f != nil && !recorded {
		e.analysed = time.Now()
		t, terr := f.trace(step)
		if terr == nil {
			if m, err = fromTrace(f.fsys.Path(rundir.TraceFile), t); err == nil {
				m.stepMS = f.stepMS(step)
			}
		} else {
			err = terr
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = errNoTrace
	}
	if err != nil {
		return nil, err
	}
	p, err := m.draw()
	if err != nil {
		return nil, err
	}
	e.took = time.Since(e.analysed)
	if len(e.pictures) >= limitPictures {
		e.pictures = e.pictures[1:]
	}
	e.pictures = append(e.pictures, p)
	return p, nil
}
