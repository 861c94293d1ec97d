package rundir

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/base/strictjson"
	"github.com/troupe-ml/troupe/internal/host/folder"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// limitChanges is the largest number of changes in a run's journal.
const limitChanges = 10_000

// Changes returns the changes in the journal. Those after a step to which the user went back
// are not among them: see cutChanges.
func (d *Dir) Changes() []event.Change { return d.changes }

// readChanges reads the journal.
func (d *Dir) readChanges() error {
	text, err := folder.ReadFile(d.FS, ChangesFile, checkpoint.FileBytesMax)
	if errors.Is(err, fs.ErrNotExist) {
		d.changes = nil
		return nil
	}
	if err == nil {
		d.changes, err = parseChanges(text)
	}
	if err != nil {
		return fmt.Errorf("%w: %s: %w; correct the file, or move it away: the run then continues without these changes", ErrFolder,
			d.FS.Path(ChangesFile), err)
	}
	return nil
}

// parseChanges reads the lines of a journal.
func parseChanges(text []byte) ([]event.Change, error) {
	var all []event.Change
	row := 0
	for line := range bytes.Lines(text) {
		row++
		dec := json.NewDecoder(bytes.NewReader(line))
		dec.DisallowUnknownFields()
		var c event.Change
		err := dec.Decode(&c)
		if err == nil {
			if _, end := dec.Token(); end != io.EOF {
				err = errors.New("there is text after the object")
			}
		}
		if err == nil {
			err = c.Check()
		}
		switch {
		case err != nil:
			return nil, fmt.Errorf("row %d: %w: %s", row, err, strictjson.Plain(string(line[:min(len(line), 100)])))
		case row > limitChanges:
			return nil, fmt.Errorf("the file has more than %d rows", limitChanges)
		}
		all = append(all, c)
	}
	return all, nil
}

// WriteChange journals a change. When it returns, the change is on disk. The error is event.ErrJournal if there is no room.
func (d *Dir) WriteChange(c event.Change) error { return d.WriteSchedule(nil, c) }

// WriteSchedule journals a change of the learning rate over time by the configuration. base, if it is not nil, is the
// schedule of the first steps, which comes before all other changes.
func (d *Dir) WriteSchedule(base *event.Change, c event.Change) error {
	all := slices.Clone(d.changes)
	if base != nil {
		all = slices.Insert(all, 0, *base)
	}
	if all = append(all, c); len(all) > limitChanges {
		return fmt.Errorf("%w: the limit of %s is %d changes; only a pause, a checkpoint or a stop without a step is still possible",
			event.ErrJournal, d.FS.Path(ChangesFile), limitChanges)
	}
	if err := d.replaceChanges(all); err != nil {
		return err
	}
	d.changes = all
	return nil
}

func (d *Dir) replaceChanges(all []event.Change) error {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	for _, c := range all {
		if err := enc.Encode(c); err != nil {
			return err
		}
	}
	return checkpoint.WriteFileAtomic(d.FS, ChangesFile, text.Bytes())
}

// cutChanges drops the changes after a step to which the user goes back, and
// keeps a copy.
func (d *Dir) cutChanges(from int64) error {
	var kept []event.Change
	for _, c := range d.changes {
		if c.Step <= from {
			kept = append(kept, c)
		}
	}
	if !d.byName || len(kept) == len(d.changes) {
		return nil
	}
	if _, err := folder.CopyAside(d.FS, ChangesFile, checkpoint.SupersededSuffix); err != nil {
		return fmt.Errorf("keep a copy of %s: %w", d.FS.Path(ChangesFile), err)
	}
	if err := d.replaceChanges(kept); err != nil {
		return err
	}
	d.changes = kept
	return nil
}
