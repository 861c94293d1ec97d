package tensorboard

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/troupe-ml/troupe/internal/folder"
	"github.com/troupe-ml/troupe/telemetry"
)

// Exported says what Export has written.
type Exported struct {
	Path    string `json:"path"`
	Records int    `json:"records"`
	Last    int    `json:"last_step"`
}

// Export writes an event file of a metrics.jsonl into a folder, which must have none. The file of
// figures has no times: the last step is taken to have ended when the file was changed last, and
// each before it as much earlier as the steps took. The configuration's text may be "".
func Export(metrics, dir, config string) (e Exported, err error) {
	fsys, err := folder.Open(filepath.Dir(metrics))
	if err != nil {
		return e, err
	}
	defer func() { err = errors.Join(err, fsys.Close()) }()
	name := filepath.Base(metrics)
	var took time.Duration
	ms := func(r telemetry.Record) time.Duration {
		if r.StepMS == nil || !(*r.StepMS >= 0 && *r.StepMS < 1e12) {
			return 0
		}
		return time.Duration(*r.StepMS * float64(time.Millisecond))
	}
	first := -1
	if err := telemetry.Each(fsys, name, func(r telemetry.Record) error {
		if first < 0 {
			first = r.Step
		}
		took += ms(r)
		return nil
	}); err != nil {
		return e, err
	}
	if first < 0 {
		return e, fmt.Errorf("%w: %s has no records", ErrNoRecords, metrics)
	}
	if has, err := holdsEvents(dir); err != nil {
		return e, err
	} else if has {
		return e, fmt.Errorf("%w: %s has event files already; name another folder, or move them away", ErrFolder, dir)
	}
	at, err := changed(fsys, name)
	if err != nil {
		return e, err
	}
	at = at.Add(-took)
	w, err := Create(dir, first, at)
	if err != nil {
		return e, err
	}
	defer func() {
		if err = errors.Join(err, w.Close()); err != nil {
			err = errors.Join(err, os.Remove(w.Path())) // half a file would stand in the way of the next attempt
		}
	}()
	if config != "" {
		if err := w.Text("config", config, first, at); err != nil {
			return e, err
		}
	}
	e = Exported{Path: w.Path(), Last: first}
	err = telemetry.Each(fsys, name, func(r telemetry.Record) error {
		if r.Step < e.Last {
			if err := w.Start(r.Step, at); err != nil {
				return err
			}
		}
		at = at.Add(ms(r))
		e.Records, e.Last = e.Records+1, r.Step
		return w.Record(r, -1, at)
	})
	return e, err
}

// ErrNoRecords: there is nothing to export.
var ErrNoRecords = errors.New("nothing to export")

// changed is when a file was changed last.
func changed(fsys folder.FS, name string) (time.Time, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return time.Time{}, err
	}
	defer func() { _ = f.Close() }() // nothing was written
	info, err := f.Stat()
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}
