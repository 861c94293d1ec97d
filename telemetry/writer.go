package telemetry

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Writer appends records to a metrics.jsonl. It is for one goroutine.
type Writer struct {
	f    *os.File
	size int64 // of the lines written whole
}

// OpenWriter opens a metrics.jsonl for appending, and makes one if there is
// none. Records of steps behind cutToStep are removed first: the run continues
// from there, and will report them again. A last line that is cut short is
// removed too. A crash leaves the old file or the new one.
func OpenWriter(path string, cutToStep int) (*Writer, error) {
	if err := cut(path, cutToStep); err != nil {
		return nil, fmt.Errorf("metrics: %s: %w", path, err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	info, err := f.Stat()
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

// Close closes the file.
func (w *Writer) Close() error { return w.f.Close() }

// cut removes the records behind a step, and what is left of a broken last line.
// The other lines stay as they are, byte for byte.
func cut(path string, cutToStep int) (err error) {
	old, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = old.Close() }() // nothing was written

	kept, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".tmp-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			// After the first error what these say adds nothing.
			_ = kept.Close()
			_ = os.Remove(kept.Name())
		}
	}()
	out := bufio.NewWriter(kept)
	err = scan(old, func(r Record, text []byte) error {
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
	if err := out.Flush(); err != nil {
		return err
	}
	if err := kept.Chmod(0o644); err != nil {
		return err
	}
	if err := kept.Sync(); err != nil {
		return err
	}
	if err := kept.Close(); err != nil {
		return err
	}
	return os.Rename(kept.Name(), path)
}
