package telemetry

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"

	"github.com/troupe-ml/troupe/internal/host/folder"
)

// lines is a kind of file with an object a line, each of which belongs to a step.
type lines[T any] struct {
	what string // it holds, for errors
	most int    // bytes of a line that is read
	step func(T) int
}

// LineWriter appends lines to a file of a run. It is for one goroutine, but for Sync.
type LineWriter[T any] struct {
	kind *lines[T]
	fsys folder.FS
	name string
	f    folder.File // nil: there is no line yet to make the file for
	size int64       // of the lines written whole
	torn bool        // behind them is a part of one
}

// open opens a file of a folder for appending, and makes one if there is none. Lines of steps
// behind cutToStep are removed first, and a last line that is cut short.
func (k *lines[T]) open(fsys folder.FS, name string, cutToStep int) (*LineWriter[T], error) {
	w, err := k.openLater(fsys, name, cutToStep)
	if err == nil {
		err = w.open()
	}
	if err != nil {
		return nil, err
	}
	return w, nil
}

// openLater is open, but a file that is not there is made with its first line. The folder must
// stay open until then.
func (k *lines[T]) openLater(fsys folder.FS, name string, cutToStep int) (*LineWriter[T], error) {
	if err := k.cut(fsys, name, cutToStep); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", k.what, fsys.Path(name), err)
	}
	return &LineWriter[T]{kind: k, fsys: fsys, name: name}, nil
}

func (w *LineWriter[T]) open() error {
	f, err := w.fsys.Append(w.name)
	if err != nil {
		return fmt.Errorf("%s: %w", w.kind.what, err)
	}
	info, err := f.Stat()
	if err == nil {
		err = w.fsys.SyncDir(path.Dir(w.name)) // the file may be new
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%s: %w", w.kind.what, err), f.Close())
	}
	w.f, w.size = f, info.Size()
	return nil
}

// Write appends one line and hands it to the operating system, so that it outlives the
// process.
func (w *LineWriter[T]) Write(v T) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("%s: step %d: %w", w.kind.what, w.kind.step(v), err)
	}
	if len(text) > w.kind.most {
		return fmt.Errorf("%s: step %d is not written: its line has %d bytes, of at most %d", w.kind.what, w.kind.step(v), len(text), w.kind.most)
	}
	if w.f == nil {
		if err := w.open(); err != nil {
			return err
		}
	}
	if err := w.mend(); err != nil {
		return fmt.Errorf("%s: step %d is not written: %w", w.kind.what, w.kind.step(v), err)
	}
	n, err := w.f.Write(append(text, '\n'))
	if err != nil {
		w.torn = n > 0
		return fmt.Errorf("%s: step %d is not written: %w", w.kind.what, w.kind.step(v), errors.Join(err, w.mend()))
	}
	w.size += int64(n)
	return nil
}

// mend removes half a line, on a full disk for example, which would spoil the next one.
func (w *LineWriter[T]) mend() error {
	if !w.torn {
		return nil
	}
	err := w.f.Truncate(w.size)
	w.torn = err != nil
	return err
}

// Sync makes what was written outlive a power failure. It may be called while
// another goroutine writes, but for the first line of a file that is made with it: what it has
// written before counts.
func (w *LineWriter[T]) Sync() error {
	if w.f == nil {
		return nil
	}
	if err := w.f.Sync(); err != nil {
		return fmt.Errorf("%s: %w", w.kind.what, err)
	}
	return nil
}

// Close closes the file.
func (w *LineWriter[T]) Close() error {
	if w.f == nil {
		return nil
	}
	return w.f.Close()
}

// cut removes the lines behind a step, and what is left of a broken last line.
// The others stay as they are, byte for byte.
func (k *lines[T]) cut(fsys folder.FS, name string, cutToStep int) error {
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
		err := k.scan(from, func(v T, text []byte) error {
			if k.step(v) > cutToStep {
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

// read returns the lines of a file. A last one that is cut short, as a crash leaves it, is not
// one of them.
func (k *lines[T]) read(path string) (all []T, err error) {
	fsys, err := folder.Open(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", k.what, folder.Unreadable(err))
	}
	defer func() { err = errors.Join(err, fsys.Close()) }()
	return k.readFrom(fsys, filepath.Base(path))
}

func (k *lines[T]) readFrom(fsys folder.FS, name string) ([]T, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", k.what, folder.Unreadable(err))
	}
	defer func() { _ = f.Close() }() // nothing was written
	from, err := folder.Whole(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", k.what, err)
	}
	var all []T
	err = k.scan(from, func(v T, _ []byte) error {
		all = append(all, v)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", k.what, fsys.Path(name), err)
	}
	return all, nil
}

// scan calls use with every value and its line, without the line's end. It
// stops silently at a last line that lacks its end and is no value.
func (k *lines[T]) scan(from io.Reader, use func(v T, text []byte) error) error {
	in := bufio.NewScanner(from)
	in.Buffer(nil, k.most)
	ended := true // the line that was read last
	in.Split(func(data []byte, atEOF bool) (int, []byte, error) {
		if end := bytes.IndexByte(data, '\n'); end >= 0 {
			return end + 1, data[:end], nil
		}
		if atEOF && len(data) > 0 {
			ended = false
			return len(data), data, nil
		}
		return 0, nil, nil
	})
	row := 0
	for in.Scan() {
		row++
		var v T
		if err := any(&v).(json.Unmarshaler).UnmarshalJSON(in.Bytes()); err != nil { // which all kinds have
			if !ended {
				return nil
			}
			return RowError(row, err)
		}
		if err := use(v, in.Bytes()); err != nil {
			return err
		}
	}
	if err := in.Err(); errors.Is(err, bufio.ErrTooLong) {
		return longRow(row+1, k.most)
	} else if err != nil {
		return fmt.Errorf("row %d: %w", row+1, err)
	}
	return nil
}
