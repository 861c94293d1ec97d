package ui

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/host/folder"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/show/draw"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/telemetry"
	"github.com/troupe-ml/troupe/telemetry/history"
)

// The folder of a run's checkpoints.
const (
	checkpoints = checkpoint.StoreName
	stepPrefix  = "step-"
)

// files are the folder of a run, which this or another process may be writing to.
type files struct {
	fsys  folder.FS
	path  string
	marks markLog

	mu      sync.Mutex // of what follows
	closed  bool
	looked  time.Time
	cfg     *config.Config
	cfgText []byte
	ideal   *float64
	err     error
	figures *history.History // nil: there are none yet
	events  *tail
	stats   *tail
	texts   *tail
	traces  *tail
	norms   []stats
	samples []sample
	steps   []tracedStep
	saved   []int
	changed time.Time // of the metrics, by the clock of the host that wrote them
	grew    time.Time // when that was seen here
}

// stats is a line of stats.jsonl.
type stats struct {
	Step   int     `json:"step"`
	Mem    []int64 `json:"mem_bytes"`
	Layers []layer `json:"layers"`
}

type layer struct {
	Name       string   `json:"name"`
	Stage      int      `json:"stage"`
	Params     int64    `json:"params"`
	WeightNorm *float64 `json:"weight_norm"`
	GradNorm   *float64 `json:"grad_norm"`
}

// sample is a line of samples.jsonl.
type sample struct {
	Step   int    `json:"step"`
	Prompt string `json:"prompt"`
	Text   string `json:"text"`
}

// tracedStep is where the trace of a step is.
type tracedStep struct {
	step   int
	at     int64
	length int
}

func openFiles(fsys folder.FS) *files {
	return &files{fsys: fsys, path: fsys.Path("."),
		events: newTail(fsys, rundir.EventsFile, limitLineBytes), stats: newTail(fsys, rundir.StatsFile, limitLineBytes),
		texts: newTail(fsys, rundir.SamplesFile, limitLineBytes), traces: newTail(fsys, rundir.TraceFile, limitTraceBytes)}
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
	f.err = errors.Join(f.readConfig(), f.readFigures(), f.readEvents(), f.readStats(), f.readSamples(), f.readTraces(), f.readCheckpoints())
}

// now reads what is new in any case.
func (f *files) now() {
	f.mu.Lock()
	f.looked = time.Time{}
	f.mu.Unlock()
	f.refresh()
}

func (f *files) readConfig() error {
	text, err := folder.ReadFile(f.fsys, rundir.ConfigFile, limitConfigBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || string(text) == string(f.cfgText) {
		return err
	}
	f.cfgText = text
	cfg, err := config.ParseStored(f.fsys.Path(rundir.ConfigFile), text)
	if err != nil {
		return err
	}
	f.cfg, f.ideal = cfg, idealOf(cfg)
	return nil
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
	case f.changed.IsZero():
		f.grew = now.Add(-max(0, now.Sub(at)))
	case !at.Equal(f.changed):
		f.grew = now
	}
	f.changed = at
}

func (f *files) readFigures() error {
	if info, err := statOf(f.fsys, rundir.MetricsFile); err == nil {
		f.change(info.ModTime())
	} else if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if f.figures != nil {
		return f.figures.Refresh()
	}
	h, err := history.Open(f.fsys, rundir.MetricsFile)
	if err == nil {
		f.figures = h
	}
	return err
}

func statOf(fsys folder.FS, name string) (fs.FileInfo, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // nothing was written
	return f.Stat()
}

// readEvents and those below pass over lines that they don't understand: a later version may have
// written them, and what is shown is not what a run goes on from.
func (f *files) readEvents() error {
	return f.events.read(f.marks.reset, func(_ int64, line []byte) error {
		var m mark
		if json.Unmarshal(line, &m) == nil && m.Kind != "" {
			f.marks.add(m)
		}
		return nil
	})
}

func (f *files) readStats() error {
	return f.stats.read(func() { f.norms = nil }, func(_ int64, line []byte) error {
		var s stats
		if json.Unmarshal(line, &s) != nil {
			return nil
		}
		for len(f.norms) > 0 && f.norms[len(f.norms)-1].Step >= s.Step { // the run went on from before
			f.norms = f.norms[:len(f.norms)-1]
		}
		if f.norms = append(f.norms, s); len(f.norms) > limitStats { // every second stays, and the last
			kept := f.norms[:0]
			for i := range f.norms {
				if i%2 == 0 || i == len(f.norms)-1 {
					kept = append(kept, f.norms[i])
				}
			}
			f.norms = kept
		}
		return nil
	})
}

func (f *files) readSamples() error {
	return f.texts.read(func() { f.samples = nil }, func(_ int64, line []byte) error {
		var s sample
		if json.Unmarshal(line, &s) != nil {
			return nil
		}
		if f.samples = append(f.samples, s); len(f.samples) > limitSamples {
			f.samples = slices.Delete(f.samples, 0, 1)
		}
		return nil
	})
}

// readTraces notes where the traces are. A trace begins with its step.
func (f *files) readTraces() error {
	return f.traces.read(func() { f.steps = nil }, func(at int64, line []byte) error {
		step, ok := stepOf(line)
		if !ok || len(f.steps) >= limitTraces {
			return nil
		}
		for n := len(f.steps); n > 0 && f.steps[n-1].step >= step; n = len(f.steps) { // the run went on from before
			f.steps = f.steps[:n-1]
		}
		f.steps = append(f.steps, tracedStep{step, at, len(line)})
		return nil
	})
}

// stepOf is the step of a trace's line.
func stepOf(line []byte) (int, bool) {
	const key = `{"step":`
	if !strings.HasPrefix(string(line[:min(len(line), len(key))]), key) {
		return 0, false
	}
	digits := line[len(key):min(len(line), len(key)+20)]
	end := slices.IndexFunc(digits, func(b byte) bool { return b < '0' || b > '9' })
	if end <= 0 {
		return 0, false
	}
	step, err := strconv.Atoi(string(digits[:end]))
	return step, err == nil
}

func (f *files) readCheckpoints() error {
	entries, err := f.fsys.ReadDir(checkpoints)
	if errors.Is(err, fs.ErrNotExist) {
		f.saved = nil
		return nil
	}
	if err != nil {
		return err
	}
	f.saved = f.saved[:0]
	for _, e := range entries {
		if digits, ok := strings.CutPrefix(e.Name(), stepPrefix); ok && e.IsDir() {
			if step, err := strconv.Atoi(digits); err == nil {
				f.saved = append(f.saved, step)
			}
		}
	}
	slices.Sort(f.saved)
	return nil
}

func (f *files) curves() *history.History {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.figures
}

// trace reads the trace of a step; step < 0: of the last one.
func (f *files) trace(step int) (t telemetry.Trace, err error) {
	f.mu.Lock()
	steps, closed := slices.Clone(f.steps), f.closed
	f.mu.Unlock()
	if closed {
		return t, fs.ErrClosed
	}
	i := len(steps) - 1
	if step >= 0 {
		i = slices.IndexFunc(steps, func(s tracedStep) bool { return s.step == step })
	}
	if i < 0 {
		return t, errNoTrace
	}
	file, err := f.fsys.Open(rundir.TraceFile)
	if err != nil {
		return t, folder.Unreadable(err)
	}
	defer func() { _ = file.Close() }() // nothing was written
	line := make([]byte, steps[i].length)
	if _, err := file.ReadAt(line, steps[i].at); err != nil {
		return t, folder.Unreadable(err)
	}
	if err := json.Unmarshal(line, &t); err != nil {
		return t, fmt.Errorf("%s: step %d: %w", f.fsys.Path(rundir.TraceFile), steps[i].step, err)
	}
	return t, nil
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
	if len(f.steps) == 0 {
		return 0, false
	}
	return f.steps[len(f.steps)-1].step, true
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
		d.Steps, d.Schedule, d.Stages, d.Chunks, d.Microbatches, d.Ranks = c.Run.Steps, c.Pipeline.Schedule, c.Pipeline.Stages, c.Pipeline.Stages*c.Pipeline.Chunks, microbatches(c), c.Ranks()
		d.Layout, d.Model, d.TraceEvery, d.IdealPct = c.Pipeline.Layout, c.Model.Family, c.Run.TraceEvery, f.ideal
		if !c.Text() {
			d.Unit = "samples"
		}
		d.StatsEvery = &c.Run.StatsEvery
	}
	if f.figures != nil {
		if r, ok := f.figures.Last(); ok {
			d.take(r)
		}
		for _, name := range []string{"loss", "val_loss"} { // which the last step need not have
			of := telemetry.FigureOf(name)
			if of.Get(&d.last) != nil {
				continue
			}
			if b := f.figures.Series(name, history.BySteps, math.Inf(-1), math.Inf(1), 1); len(b) > 0 {
				of.Set(&d.last, &b[len(b)-1].Last)
			}
		}
	}
	if !f.changed.IsZero() {
		d.Updated = f.changed.UnixMilli()
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
	case f.changed.IsZero() && len(f.steps) == 0:
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
