package tensorboard

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/host/folder"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/telemetry"
)

// Exported describes the file that Export wrote.
type Exported struct {
	Path    string `json:"path"`
	Records int    `json:"records"`
	Last    int    `json:"last_step"`
}

// ErrNoRecords means that a run has no records to export.
var ErrNoRecords = errors.New("nothing to export")

// Export writes the metrics, samples and configuration in a run's folder to an event file. It writes to the folder
// dir, or to Folder in the run's folder if dir is empty; that folder must not have event files. metrics.jsonl has no
// times: Export takes its modification time as the end of the last step, and subtracts the duration of each step for
// the steps before.
func Export(run, dir string) (e Exported, err error) {
	in, err := folder.Open(run)
	if err != nil {
		return e, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	first, took, err := measure(in)
	if err != nil {
		return e, err
	}
	f, err := in.Open(rundir.MetricsFile)
	if err != nil {
		return e, err
	}
	info, err := f.Stat()
	if err = errors.Join(err, f.Close()); err != nil {
		return e, err
	}
	samples, err := telemetry.ReadSamplesFrom(in, rundir.SamplesFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return e, err
	}
	text, err := folder.ReadFile(in, rundir.ConfigFile, config.MaxFileBytes)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return e, err
	}
	out, err := openFolder(run, dir)
	if err != nil {
		return e, err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if _, n, err := newest(out); err != nil {
		return e, err
	} else if n > 0 {
		return e, fmt.Errorf("%w: %s already has event files; choose another folder, or move them away", ErrFolder, out.Path("."))
	}
	at := info.ModTime().Add(-took)
	w, err := create(out, first, at)
	if err != nil {
		return e, err
	}
	defer func() {
		if err = errors.Join(err, w.Close()); err != nil {
			err = errors.Join(err, os.Remove(w.Path())) // a partial file would block the next attempt
		}
	}()
	if len(text) > 0 {
		if err := w.Text("config", string(text), first, at); err != nil {
			return e, err
		}
	}
	e = Exported{Path: w.Path(), Last: first}
	err = telemetry.Each(in, rundir.MetricsFile, func(r telemetry.Record) error {
		if r.Step < e.Last {
			if err := w.Start(r.Step, at); err != nil {
				return err
			}
		}
		at = at.Add(tookOf(r))
		e.Records, e.Last = e.Records+1, r.Step
		for len(samples) > 0 && samples[0].Step <= r.Step {
			if err := writeSample(w, samples[0], at); err != nil {
				return err
			}
			samples = samples[1:]
		}
		return w.Record(r, -1, at)
	})
	return e, err
}

// measure returns the first step of a run's metrics.jsonl and the duration of all steps.
func measure(in folder.FS) (first int, took time.Duration, err error) {
	n := 0
	err = telemetry.Each(in, rundir.MetricsFile, func(r telemetry.Record) error {
		if n++; n == 1 {
			first = r.Step
		}
		took += tookOf(r)
		return nil
	})
	if err == nil && n == 0 {
		err = fmt.Errorf("%w: %s has no records", ErrNoRecords, in.Path(rundir.MetricsFile))
	}
	return first, took, err
}

// tookOf returns the duration of a step, 0 if it is not plausible.
func tookOf(r telemetry.Record) time.Duration {
	if r.StepMS == nil || !(*r.StepMS >= 0 && *r.StepMS < 1e12) {
		return 0
	}
	return time.Duration(*r.StepMS * float64(time.Millisecond))
}
