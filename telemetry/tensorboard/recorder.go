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

// Options are what a Recorder needs to know of a run.
type Options struct {
	Run string // its folder
	Dir string // for the event files; "": Folder in the run's
	// From is the first step that the run reports: 0 of one that begins, else the one behind
	// the checkpoint that it goes on from. See FirstStep.
	From   int
	Config string // the configuration's text; "": it is not written
	// Warn is told once that something can't be written; nil: nobody is.
	Warn func(text string)
	Now  func() time.Time // nil: time.Now
}

// FirstStep is Options.From of a run.
func FirstStep(i troupe.Info) int {
	if i.ResumedAt == 0 {
		return 0
	}
	return i.ResumedAt + 1
}

// Recorder writes a run's events into an event file. It is for one goroutine.
type Recorder struct {
	o       Options
	w       *Writer
	last    int   // step that was written last
	sampled int   // step of the last sample
	samples int64 // size of samples.jsonl when it was read
	missed  int   // events that could not be written
}

// NewRecorder makes the file.
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

// Path is where the file is.
func (r *Recorder) Path() string { return r.w.Path() }

// Observe writes what an event tells. It waits for the disk, never for the run.
func (r *Recorder) Observe(e troupe.Event) {
	step, ok := e.(troupe.StepEvent)
	if !ok {
		return
	}
	now := r.o.Now()
	switch {
	case step.Step <= r.last: // it has gone back to a checkpoint
		r.note(r.w.Start(step.Step, now))
		r.sampled, r.samples = min(r.sampled, step.Step-1), 0
	case step.Step > r.last+1:
		r.note(r.fill(step.Step, now))
	}
	r.note(r.w.Record(step.Record, step.IdealBubblePct, now))
	r.last = step.Step
	if step.ValLoss != nil {
		r.note(r.writeSamples(now)) // of earlier validations: a sample takes a while
	}
}

// fill writes the steps between the last one and this one, which nobody has told of, from the
// run's own file. A step has its line there before its event.
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

// writeSamples writes the samples that the run's file has more.
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

// inRun does something in the run's folder. A file that is not there is no error.
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

// note counts what could not be written.
func (r *Recorder) note(err error) {
	if err == nil {
		return
	}
	if r.missed++; r.missed == 1 {
		r.o.Warn(fmt.Sprintf("%v; training goes on, and engine tensorboard writes the events from metrics.jsonl", err))
	}
}

// Close writes the last samples and ends the file. An error says how many events it lacks.
func (r *Recorder) Close() error {
	r.note(r.writeSamples(r.o.Now()))
	err := r.w.Close()
	if r.missed > 0 {
		err = errors.Join(err, fmt.Errorf("tensorboard: %d events could not be written to %s; engine tensorboard writes them from metrics.jsonl",
			r.missed, r.w.Path()))
	}
	return err
}
