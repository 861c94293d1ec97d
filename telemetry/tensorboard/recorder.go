package tensorboard

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/folder"
	"github.com/troupe-ml/troupe/telemetry"
)

// Options are what a Recorder needs to know of a run.
type Options struct {
	Dir string // of the event files; it is made where there is none
	// From is the first step that the run reports: 0 of one that begins, else the one behind
	// the checkpoint that it goes on from.
	From    int
	Config  string // the configuration's text; "": it is not written
	Metrics string // the run's metrics.jsonl, of which steps that were not observed are taken; "": they are left out
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
	o      Options
	w      *Writer
	last   int // step that was written last
	missed int // events that could not be written
}

// NewRecorder makes the file.
func NewRecorder(o Options) (*Recorder, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Warn == nil {
		o.Warn = func(string) {}
	}
	w, err := Create(o.Dir, o.From, o.Now())
	if err != nil {
		return nil, err
	}
	r := &Recorder{o: o, w: w, last: o.From - 1}
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
	case step.Step <= r.last:
		r.note(r.w.Start(step.Step, now)) // it has gone back to a checkpoint
	case step.Step > r.last+1 && r.o.Metrics != "":
		r.fill(step.Step, now)
	}
	r.note(r.w.Record(step.Record, step.IdealBubblePct, now))
	r.last = step.Step
}

// fill writes the steps between the last one and this one, which nobody has told of, from the
// run's own file. A step has its line there before its event.
func (r *Recorder) fill(before int, now time.Time) {
	fsys, err := folder.Open(filepath.Dir(r.o.Metrics))
	if err == nil {
		err = telemetry.Each(fsys, filepath.Base(r.o.Metrics), func(rec telemetry.Record) error {
			if r.last < rec.Step && rec.Step < before {
				return r.w.Record(rec, -1, now)
			}
			return nil
		})
		err = errors.Join(err, fsys.Close())
	}
	if !errors.Is(err, fs.ErrNotExist) {
		r.note(err)
	}
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

// Close ends the file. An error says how many events it lacks.
func (r *Recorder) Close() error {
	err := r.w.Close()
	if r.missed > 0 {
		err = errors.Join(err, fmt.Errorf("tensorboard: %d events could not be written to %s; engine tensorboard writes them from metrics.jsonl", r.missed, r.w.Path()))
	}
	return err
}
