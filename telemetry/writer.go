package telemetry

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"

	"github.com/troupe-ml/troupe/internal/folder"
)

// Writer appends records to a metrics.jsonl. It is for one goroutine, but for Sync.
type Writer struct {
	f    folder.File
	size int64 // of the lines written whole
}

// OpenWriter opens a metrics.jsonl of a folder for appending, and makes one if there
// is none. Records of steps behind cutToStep are removed first: the run continues
// from there, and will report them again. A last line that is cut short is
// removed too. A crash leaves the old file or the new one.
func OpenWriter(fsys folder.FS, name string, cutToStep int) (*Writer, error) {
	if err := cut(fsys, name, cutToStep); err != nil {
		return nil, fmt.Errorf("metrics: %s: %w", fsys.Path(name), err)
	}
	f, err := fsys.Append(name)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	info, err := f.Stat()
	if err == nil {
		err = fsys.SyncDir(path.Dir(name)) // the file may be new
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("metrics: %w", err), f.Close())
	}
	return &Writer{f: f, size: info.Size()}, nil
}

// Write appends one record and hands it to the operating system, so that it
// outlives the process.
func (w *Writer) Write(r Record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("metrics: step %d: %w", r.Step, err)
	}
	n, err := w.f.Write(append(text, '\n'))
	if err != nil {
		// Half a line, on a full disk, would spoil the next one.
		if n > 0 {
			err = errors.Join(err, w.f.Truncate(w.size))
		}
		return fmt.Errorf("metrics: step %d is not written: %w", r.Step, err)
	}
	w.size += int64(n)
	return nil
}

// Sync makes what was written outlive a power failure. It may be called while
// another goroutine writes: what it has written before counts.
func (w *Writer) Sync() error {
	if err := w.f.Sync(); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	return nil
}

// Close closes the file.
func (w *Writer) Close() error { return w.f.Close() }

// cut removes the records behind a step, and what is left of a broken last line.
// The other lines stay as they are, byte for byte.
func cut(fsys folder.FS, name string, cutToStep int) error {
	old, err := fsys.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return folder.Unreadable(err)
	}
	defer func() { _ = old.Close() }() // nothing was written
	from, err := folder.Whole(old)
	if err != nil {
		return err
	}
	return folder.Replace(fsys, name, func(w io.Writer) error {
		out := bufio.NewWriter(w)
		err := scan(from, func(r Record, text []byte) error {
			if r.Step > cutToStep {
				return nil
			}
			if _, err := out.Write(text); err != nil {
				return err
			}
			return out.WriteByte('\n')
		})
		if err != nil {
			return err
		}
		return out.Flush()
	})
}
