package rundir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/host/folder"
	"github.com/troupe-ml/troupe/telemetry"
	"github.com/troupe-ml/troupe/telemetry/history"
)

// The limits of a Reader.
const (
	tailLineBytes  = 16 << 20 // of stats.jsonl, samples.jsonl and events.jsonl
	tailTraceBytes = 1 << 28  // of a line of trace.jsonl
	tailPartBytes  = 16 << 20 // of a file that are read at a time
)

// ErrNoTrace: the run has no trace of the step.
var ErrNoTrace = errors.New("no step was recorded")

// RunFolder returns the folder of a run. The path may be that of its folder of checkpoints.
func RunFolder(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err == nil && filepath.Base(abs) == checkpoint.StoreName {
		path = filepath.Join(path, "..")
	}
	return path, err
}

// ReaderOptions limit what a Reader keeps.
type ReaderOptions struct {
	Stats   int // lines of stats.jsonl, thinned out evenly
	Samples int // the newest N
	Traces  int // steps of trace.jsonl; later ones are ignored
	// Mark is called for each line of events.jsonl, and Forget when the file was replaced.
	Mark   func(m telemetry.Mark)
	Forget func()
}

// Reader reads the folder of a run, and then follows it: this or another process may be
// writing to it. A missing file counts as empty. A last line without its end is read later. A file that was cut
// or replaced is read again from its start. Lines that are not understood are skipped:
// a later version may have written them, and no run resumes from a Reader.
//
// It is for one goroutine, except for Trace.
type Reader struct {
	FS          folder.FS
	Config      *config.Config   // nil: none
	History     *history.History // nil: no metrics yet
	Changed     time.Time        // of the metrics, by the clock of the host that wrote them
	Stats       []telemetry.Stats
	Samples     []telemetry.Sample
	Traced      []TracedStep
	Checkpoints []int // steps

	keep                            ReaderOptions
	configText                      []byte
	events, stats, samples, tracing *tail
}

// TracedStep is a step in trace.jsonl, with its position.
type TracedStep struct {
	Step   int
	at     int64
	length int
}

// NewReader returns a Reader of an open folder. The caller closes the folder.
func NewReader(fsys folder.FS, keep ReaderOptions) *Reader {
	return &Reader{FS: fsys, keep: keep, events: newTail(fsys, EventsFile, tailLineBytes), stats: newTail(fsys, StatsFile, tailLineBytes),
		samples: newTail(fsys, SamplesFile, tailLineBytes), tracing: newTail(fsys, TraceFile, tailTraceBytes)}
}

// Refresh reads the new content of all files.
func (r *Reader) Refresh() error {
	return errors.Join(r.ReadConfig(), r.ReadMetrics(), r.ReadEvents(), r.readStats(), r.readSamples(), r.readTraces(), r.readCheckpoints())
}

// ReadConfig reads config.toml if it has changed.
func (r *Reader) ReadConfig() error {
	text, err := folder.ReadFile(r.FS, ConfigFile, config.MaxFileBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || r.configText != nil && string(text) == string(r.configText) {
		return err
	}
	r.configText = append([]byte{}, text...) // not nil, even if the file is empty
	cfg, err := config.ParseStored(r.FS.Path(ConfigFile), text)
	if err == nil {
		r.Config = cfg
	}
	return err
}

// ReadMetrics reads the new lines of metrics.jsonl.
func (r *Reader) ReadMetrics() error {
	f, err := r.FS.Open(MetricsFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		if info, err := f.Stat(); err == nil {
			r.Changed = info.ModTime()
		}
		_ = f.Close() // nothing was written
	}
	if r.History != nil {
		return r.History.Refresh()
	}
	h, err := history.Open(r.FS, MetricsFile)
	if err == nil {
		r.History = h
	}
	return err
}

// ReadEvents reads the new lines of events.jsonl.
func (r *Reader) ReadEvents() error {
	return r.events.read(r.keep.Forget, func(_ int64, line []byte) error {
		var m telemetry.Mark
		if m.UnmarshalJSON(line) == nil {
			r.keep.Mark(m)
		}
		return nil
	})
}

func (r *Reader) readStats() error {
	return r.stats.read(func() { r.Stats = nil }, func(_ int64, line []byte) error {
		var s telemetry.Stats
		if s.UnmarshalJSON(line) != nil {
			return nil
		}
		for len(r.Stats) > 0 && r.Stats[len(r.Stats)-1].Step >= s.Step { // the run went back to before
			r.Stats = r.Stats[:len(r.Stats)-1]
		}
		if r.Stats = append(r.Stats, s); len(r.Stats) > r.keep.Stats { // every second stays, and the last
			kept := r.Stats[:0]
			for i := range r.Stats {
				if i%2 == 0 || i == len(r.Stats)-1 {
					kept = append(kept, r.Stats[i])
				}
			}
			r.Stats = kept
		}
		return nil
	})
}

func (r *Reader) readSamples() error {
	return r.samples.read(func() { r.Samples = nil }, func(_ int64, line []byte) error {
		var s telemetry.Sample
		if s.UnmarshalJSON(line) != nil {
			return nil
		}
		if r.Samples = append(r.Samples, s); len(r.Samples) > r.keep.Samples {
			r.Samples = slices.Delete(r.Samples, 0, 1)
		}
		return nil
	})
}

// readTraces records the positions of the traces.
func (r *Reader) readTraces() error {
	return r.tracing.read(func() { r.Traced = nil }, func(at int64, line []byte) error {
		step, ok := stepOfTrace(line)
		if !ok || len(r.Traced) >= r.keep.Traces {
			return nil
		}
		for n := len(r.Traced); n > 0 && r.Traced[n-1].Step >= step; n = len(r.Traced) { // the run went back to before
			r.Traced = r.Traced[:n-1]
		}
		r.Traced = append(r.Traced, TracedStep{step, at, len(line)})
		return nil
	})
}

// stepOfTrace returns the step at the start of a trace's line.
func stepOfTrace(line []byte) (int, bool) {
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

// Trace reads the trace of one of the steps; step < 0: of the last one.
func (r *Reader) Trace(steps []TracedStep, step int) (t telemetry.Trace, err error) {
	i := len(steps) - 1
	if step >= 0 {
		i = slices.IndexFunc(steps, func(s TracedStep) bool { return s.Step == step })
	}
	if i < 0 {
		return t, ErrNoTrace
	}
	file, err := r.FS.Open(TraceFile)
	if err != nil {
		return t, folder.Unreadable(err)
	}
	defer func() { _ = file.Close() }() // nothing was written
	line := make([]byte, steps[i].length)
	if _, err := file.ReadAt(line, steps[i].at); err != nil {
		return t, folder.Unreadable(err)
	}
	if err := json.Unmarshal(line, &t); err != nil {
		return t, fmt.Errorf("%s: step %d: %w", r.FS.Path(TraceFile), steps[i].Step, err)
	}
	return t, nil
}

func (r *Reader) readCheckpoints() error {
	entries, err := r.FS.ReadDir(checkpoint.StoreName)
	if errors.Is(err, fs.ErrNotExist) {
		r.Checkpoints = nil
		return nil
	}
	if err != nil {
		return err
	}
	r.Checkpoints = r.Checkpoints[:0]
	for _, e := range entries {
		if digits, ok := strings.CutPrefix(e.Name(), "step-"); ok && e.IsDir() {
			if step, err := strconv.Atoi(digits); err == nil {
				r.Checkpoints = append(r.Checkpoints, step)
			}
		}
	}
	slices.Sort(r.Checkpoints)
	return nil
}
