package ui

import (
	"errors"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/host/folder"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/show/draw"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/telemetry"
	"github.com/troupe-ml/troupe/telemetry/history"
)

// files are the folder of a run, which this or another process may be writing to.
type files struct {
	fsys  folder.FS
	path  string
	marks markLog

	mu     sync.Mutex // of what follows
	closed bool
	looked time.Time
	in     *rundir.Reader
	cfg    *config.Config // whose ideal is known
	ideal  *float64
	err    error
	seen   time.Time // what in.Changed was
	grew   time.Time // when that was seen here
}

func openFiles(fsys folder.FS) *files {
	f := &files{fsys: fsys, path: fsys.Path(".")}
	f.in = rundir.NewReader(fsys, rundir.ReaderOptions{Stats: limitStats, Samples: limitSamples, Traces: limitTraces,
		Forget: f.marks.reset, Mark: func(m telemetry.Mark) {
			f.marks.add(mark{TimeMS: m.TimeMS, Step: int64(m.Step), Kind: m.Kind, Text: m.Text})
		}})
	return f
}

func (f *files) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.closed = true
		_ = f.fsys.Close() // nothing was written
	}
}

// refresh reads what is new, unless it has just been.
func (f *files) refresh() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || time.Since(f.looked) < filesEvery {
		return
	}
	f.looked = time.Now()
	f.err = f.in.Refresh()
	if !f.in.Changed.IsZero() {
		f.change(f.in.Changed)
	}
	if f.cfg != f.in.Config {
		f.cfg, f.ideal = f.in.Config, idealOf(f.in.Config)
	}
}

// now reads what is new in any case.
func (f *files) now() {
	f.mu.Lock()
	f.looked = time.Time{}
	f.mu.Unlock()
	f.refresh()
}

// idealOf is the bubble of the configuration's table at unit costs; nil: it is not known without
// the model.
func idealOf(cfg *config.Config) *float64 {
	p := cfg.Pipeline
	if cfg.HasOwnTable() || p.Schedule == scheduler.Auto || cfg.Batch.Microbatch < 1 ||
		cfg.Batch.Sequences/cfg.Batch.Microbatch*p.Stages*p.Chunks > draw.MaxStepActions/4 {
		return nil
	}
	t, err := scheduler.Generate(cfg.TableSpec())
	if err != nil {
		return nil
	}
	tl, err := scheduler.Simulate(t, scheduler.UnitCosts)
	if err != nil {
		return nil
	}
	pct := 100 * tl.BubbleFraction
	return &pct
}

// microbatches are those of a step, of one replica.
func microbatches(cfg *config.Config) int {
	return cfg.Batch.Sequences / max(1, cfg.Batch.Microbatch) / max(1, cfg.Parallel.Data)
}

// change notes when the metrics changed. How long ago that was is a guess by two hosts' clocks for what changed before
// the first look, and measured from then on.
func (f *files) change(at time.Time) {
	switch now := time.Now(); {
	case f.seen.IsZero():
		f.grew = now.Add(-max(0, now.Sub(at)))
	case !at.Equal(f.seen):
		f.grew = now
	}
	f.seen = at
}

func (f *files) curves() *history.History {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.in.History
}

// trace reads the trace of a step; step < 0: of the last one.
func (f *files) trace(step int) (t telemetry.Trace, err error) {
	f.mu.Lock()
	steps, closed := slices.Clone(f.in.Traced), f.closed
	f.mu.Unlock()
	if closed {
		return t, fs.ErrClosed
	}
	return f.in.Trace(steps, step)
}

// stepMS is what a step took with its update; 0: it is not known.
func (f *files) stepMS(step int) float64 {
	c := f.curves()
	if c == nil {
		return 0
	}
	for _, b := range c.Series("step_ms", history.BySteps, float64(step), float64(step), 1) {
		if b.Step == step && b.Last > 0 && !math.IsInf(b.Last, 0) {
			return b.Last
		}
	}
	return 0
}

// lastTraced is the last step of the file.
func (f *files) lastTraced() (int, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.in.Traced) == 0 {
		return 0, false
	}
	return f.in.Traced[len(f.in.Traced)-1].Step, true
}

// describe says what the files tell.
func (f *files) describe(d *description) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		d.Error = f.err.Error()
	}
	if c := f.cfg; c != nil {
		if c.Run.Name != "" && !d.Live {
			d.Text = c.Run.Name
		}
		d.Steps, d.Schedule, d.Stages, d.Chunks, d.Microbatches, d.Ranks = c.Run.Steps, c.Pipeline.Schedule, c.Pipeline.Stages,
			c.Pipeline.Stages*c.Pipeline.Chunks, microbatches(c), c.Ranks()
		d.Layout, d.Model, d.TraceEvery, d.IdealPct = c.Pipeline.Layout, c.Model.Family, c.Run.TraceEvery, f.ideal
		if !c.Text() {
			d.Unit = "samples"
		}
		d.StatsEvery = &c.Run.StatsEvery
	}
	if f.in.History != nil {
		if r, ok := f.in.History.Last(); ok {
			d.take(r)
		}
		for _, name := range []string{"loss", "val_loss"} { // which the last step need not have
			of := telemetry.FigureOf(name)
			if of.Get(&d.last) != nil {
				continue
			}
			if b := f.in.History.Series(name, history.BySteps, math.Inf(-1), math.Inf(1), 1); len(b) > 0 {
				of.Set(&d.last, &b[len(b)-1].Last)
			}
		}
	}
	if !f.seen.IsZero() {
		d.Updated = f.seen.UnixMilli()
	}
	d.State = f.state(d)
}

// state is what the files let one think of a run that another process trains.
func (f *files) state(d *description) string {
	quiet := quietAfter
	if ms := d.last.StepMS; ms != nil && *ms < 1e9 {
		quiet = max(quiet, time.Duration(*ms*10)*time.Millisecond)
	}
	last, ok := f.marks.last(telemetry.MarkStart, telemetry.MarkResume, telemetry.MarkEnd, telemetry.MarkStop)
	_, failed := telemetry.Mark{Kind: last.Kind, Text: last.Text}.Failure()
	switch over := ok && last.Kind == telemetry.MarkEnd; {
	case d.Steps > 0 && d.Step >= d.Steps:
		return "ended"
	case failed:
		return "failed"
	case over:
		return "stopped"
	case f.seen.IsZero() && len(f.in.Traced) == 0:
		return "starting"
	case time.Since(f.grew) > quiet:
		return "quiet"
	}
	return "running"
}

// shelf is a folder that was opened: a run's, or one of runs.
type shelf struct {
	path string
	fsys folder.FS
	own  bool // it is a run's
	seen map[string]bool
	last time.Time
	err  error
}

type foundRun struct {
	name, path string
	files      *files
}

func openShelf(path string) (*shelf, error) {
	fsys, err := folder.Open(path)
	if err != nil {
		return nil, err
	}
	s := &shelf{path: path, fsys: fsys, seen: make(map[string]bool)}
	s.own, err = isRun(fsys)
	if err != nil {
		return nil, errors.Join(err, fsys.Close())
	}
	return s, nil
}

// isRun reports whether a folder is a run's.
func isRun(fsys folder.FS) (bool, error) {
	entries, err := fsys.ReadDir(".")
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		return e.Type().IsRegular() && (e.Name() == rundir.ConfigFile || e.Name() == rundir.MetricsFile || e.Name() == rundir.TraceFile)
	}), nil
}

// newRuns are those that were not there the last time. The folder is listed now and then.
func (s *shelf) newRuns() (found []foundRun) {
	if !s.last.IsZero() && (s.own || time.Since(s.last) < listEvery) {
		return nil
	}
	s.last, s.err = time.Now(), nil
	add := func(name string) {
		sub, err := s.fsys.Sub(name)
		if err != nil {
			s.err = err
			return
		}
		if ok, err := isRun(sub); !ok || err != nil {
			_ = sub.Close() // nothing was written
			return
		}
		s.seen[name] = true
		path := filepath.Join(s.path, name)
		found = append(found, foundRun{filepath.Base(path), path, openFiles(sub)})
	}
	if s.own {
		add(".")
		return found
	}
	entries, err := s.fsys.ReadDir(".")
	s.err = err
	for _, e := range entries {
		if e.IsDir() && !s.seen[e.Name()] && len(s.seen) < limitRuns {
			add(e.Name())
		}
	}
	return found
}

func (s *shelf) close() { _ = s.fsys.Close() } // nothing was written
