package tensorboard

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/host/folder"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/telemetry"
)

// Options configure a Recorder.
type Options struct {
	Run string // the run's folder
	Dir string // folder for the event files; "": Folder in the run's folder
	// From is the first step that the run reports: 0 for a fresh start, else the step after the checkpoint that the
	// run resumes from. See FirstStep.
	From   int
	Config string // text of the configuration; "": none
	// Warn is called at the first failed write; nil: no warning.
	Warn func(text string)
	Now  func() time.Time // nil: time.Now
}

// FirstStep returns Options.From for a run.
func FirstStep(i troupe.Info) int {
	if i.ResumedAt == 0 {
		return 0
	}
	return i.ResumedAt + 1
}

// Recorder writes the steps of a run to an event file. It is for one goroutine.
type Recorder struct {
	o       Options
	w       *Writer
	last    int   // last step that was written
	sampled int   // step of the last sample
	samples int64 // size of samples.jsonl at the last read
	missed  int   // events that could not be written
}

// NewRecorder creates the event file.
func NewRecorder(o Options) (*Recorder, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Warn == nil {
		o.Warn = func(string) {}
	}
	fsys, err := openFolder(o.Run, o.Dir)
	if err != nil {
		return nil, fmt.Errorf("tensorboard: %w", err)
	}
	w, err := create(fsys, o.From, o.Now())
	if err = errors.Join(err, fsys.Close()); err != nil { // the file stays open
		return nil, fmt.Errorf("tensorboard: %w", err)
	}
	r := &Recorder{o: o, w: w, last: o.From - 1, sampled: o.From - 1}
	if o.Config != "" {
		r.note(w.Text("config", o.Config, o.From, o.Now()))
	}
	return r, nil
}

// Path returns the path of the file.
func (r *Recorder) Path() string { return r.w.Path() }

// Observe writes the metrics of a StepEvent and ignores other events. It waits for the disk, never for the run.
func (r *Recorder) Observe(e troupe.Event) {
	step, ok := e.(troupe.StepEvent)
	if !ok {
		return
	}
	now := r.o.Now()
	switch {
	case step.Step <= r.last: // the run restarted from a checkpoint
		r.note(r.w.Start(step.Step, now))
		r.sampled, r.samples = min(r.sampled, step.Step-1), 0
	case step.Step > r.last+1:
		r.note(r.fill(step.Step, now))
	}
	r.note(r.w.Record(step.Record, step.IdealBubblePct, now))
	r.last = step.Step
	if step.ValLoss != nil {
		r.note(r.writeSamples(now)) // samples of earlier validations: a sample takes a while
	}
}

// fill writes the steps whose events were dropped, from the run's metrics.jsonl. A step is written there before its
// event.
func (r *Recorder) fill(before int, now time.Time) error {
	return r.inRun(func(run folder.FS) error {
		return telemetry.Each(run, rundir.MetricsFile, func(rec telemetry.Record) error {
			if r.last < rec.Step && rec.Step < before {
				return r.w.Record(rec, -1, now)
			}
			return nil
		})
	})
}

// writeSamples writes the new samples of the run's file.
func (r *Recorder) writeSamples(now time.Time) error {
	return r.inRun(func(run folder.FS) error {
		size, err := sizeOf(run, rundir.SamplesFile)
		if err != nil || size == r.samples {
			return err
		}
		all, err := telemetry.ReadSamplesFrom(run, rundir.SamplesFile)
		if err != nil {
			return err
		}
		r.samples = size
		for _, s := range all {
			if s.Step <= r.sampled {
				continue
			}
			if err := writeSample(r.w, s, now); err != nil {
				return err
			}
			r.sampled = s.Step
		}
		return nil
	})
}

func writeSample(w *Writer, s telemetry.Sample, at time.Time) error {
	return w.Text("samples", s.Prompt+s.Text, s.Step, at)
}

func sizeOf(fsys folder.FS, name string) (int64, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }() // nothing was written
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// inRun calls do with the run's folder. A missing file is no error.
func (r *Recorder) inRun(do func(run folder.FS) error) error {
	if r.o.Run == "" {
		return nil
	}
	run, err := folder.Open(r.o.Run)
	if err == nil {
		err = errors.Join(do(run), run.Close())
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// note counts failed writes.
func (r *Recorder) note(err error) {
	if err == nil {
		return
	}
	if r.missed++; r.missed == 1 {
		r.o.Warn(fmt.Sprintf("%v; training continues, and engine tensorboard can write the events from metrics.jsonl later", err))
	}
}

// Close writes the last samples and closes the file. Its error says how many events are missing.
func (r *Recorder) Close() error {
	r.note(r.writeSamples(r.o.Now()))
	err := r.w.Close()
	if r.missed > 0 {
		err = errors.Join(err,
			fmt.Errorf("tensorboard: %d events could not be written to %s; engine tensorboard can write them from metrics.jsonl",
				r.missed, r.w.Path()))
	}
	return err
}
