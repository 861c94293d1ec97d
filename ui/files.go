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

// files reads the folder of a run, which this or another process may be writing.
type files struct {
	fsys  folder.FS
	path  string
	marks markLog

	mu     sync.Mutex // of what follows
	closed bool
	looked time.Time
	in     *rundir.Reader
	cfg    *config.Config // configuration that ideal belongs to
	ideal  *float64
	keys   []config.Entry // of cfg
	params int64          // parameters of the model; 0: not known
	saved  int            // step of the checkpoint that params was read from
	err    error
	seen   time.Time // last value of in.Changed
	grew   time.Time // time of the last change by this host's clock
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

// refresh reads new data, at most once in filesEvery.
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
		f.cfg, f.ideal, f.keys = f.in.Config, idealOf(f.in.Config), config.Entries(f.in.Config)
	}
	if n := len(f.in.Checkpoints); n > 0 && f.params == 0 && f.in.Checkpoints[n-1] != f.saved {
		f.params, f.saved = f.in.ReadModel(), f.in.Checkpoints[n-1]
	}
}

// now reads new data at once.
func (f *files) now() {
	f.mu.Lock()
	f.looked = time.Time{}
	f.mu.Unlock()
	f.refresh()
}

// idealOf returns the ideal bubble of the configuration's table in percent; nil: it depends on the model.
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

// microbatches returns the microbatches of a step in one replica.
func microbatches(cfg *config.Config) int {
	return cfg.Batch.Sequences / max(1, cfg.Batch.Microbatch) / max(1, cfg.Parallel.Data)
}

// change records the time of a change of the metrics. At the first call it depends on the clocks of two hosts; later
// it is measured with this host's clock.
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

// trace reads the trace of a step; step < 0: the last one.
func (f *files) trace(step int) (t telemetry.Trace, err error) {
	f.mu.Lock()
	steps, closed := slices.Clone(f.in.Traced), f.closed
	f.mu.Unlock()
	if closed {
		return t, fs.ErrClosed
	}
	return f.in.Trace(steps, step)
}

// stepMS returns the duration of a step with its update in milliseconds; 0: not known.
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

// lastTraced returns the last step of the trace file.
func (f *files) lastTraced() (int, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.in.Traced) == 0 {
		return 0, false
	}
	return f.in.Traced[len(f.in.Traced)-1].Step, true
}

// describe fills a description from the files.
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
		d.StatsEvery, d.LR = &c.Run.StatsEvery, &c.Optimizer.LR
	}
	d.Parameters = f.params
	if f.in.History != nil {
		if r, ok := f.in.History.Last(); ok {
			d.take(r)
		}
		for _, name := range []string{"loss", "val_loss"} { // the last step may not report them
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

// state guesses from the files the state of a run that another process trains.
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

// shelf is an opened folder: of a run, or of several runs.
type shelf struct {
	path string
	fsys folder.FS
	own  bool // it is the folder of a run
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

// newRuns returns the runs that are new since the last call. It lists the folder at most once in listEvery.
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
