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

// lines describes a kind of file with one JSON object a line, each of which belongs to a step.
type lines[T any] struct {
	what string // content, for errors
	most int    // longest line in bytes
	step func(T) int
}

// LineWriter appends lines to a file of a run. Only Sync may be called from another goroutine.
type LineWriter[T any] struct {
	kind *lines[T]
	fsys folder.FS
	name string
	f    folder.File // nil: the first Write creates the file
	size int64       // size of the complete lines
	torn bool        // a partial line follows them
}

// open opens a file of a folder for appending, and creates it if it does not exist. It first removes lines after step
// cutToStep, and a truncated last line.
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

// openLater is like open, but the first Write creates a file that does not exist. The folder must stay open until
// then.
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

// Write appends one line and passes it to the operating system, so that it survives the end of the process.
func (w *LineWriter[T]) Write(v T) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("%s: step %d: %w", w.kind.what, w.kind.step(v), err)
	}
	if len(text) > w.kind.most {
		return fmt.Errorf("%s: step %d was not written: its line has %d bytes, the limit is %d", w.kind.what, w.kind.step(v), len(text),
			w.kind.most)
	}
	if w.f == nil {
		if err := w.open(); err != nil {
			return err
		}
	}
	if err := w.mend(); err != nil {
		return fmt.Errorf("%s: step %d was not written: %w", w.kind.what, w.kind.step(v), err)
	}
	n, err := w.f.Write(append(text, '\n'))
	if err != nil {
		w.torn = n > 0
		return fmt.Errorf("%s: step %d was not written: %w", w.kind.what, w.kind.step(v), errors.Join(err, w.mend()))
	}
	w.size += int64(n)
	return nil
}

// mend removes a partial line, as a full disk leaves one: it would damage the next line.
func (w *LineWriter[T]) mend() error {
	if !w.torn {
		return nil
	}
	err := w.f.Truncate(w.size)
	w.torn = err != nil
	return err
}

// Sync makes the written lines survive a power failure. It may be called while another goroutine writes, except while
// the first Write creates the file. It covers the lines of Writes that have returned.
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

// cut removes the lines after a step, and a truncated last line. The others stay unchanged, byte for byte.
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

// read returns the lines of a file, except a truncated last line, which a crash can leave.
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

// scan calls use with every value and its line, without the line break. It ignores a last line that has no line break
// and is invalid.
func (k *lines[T]) scan(from io.Reader, use func(v T, text []byte) error) error {
	in := bufio.NewScanner(from)
	in.Buffer(nil, k.most)
	ended := true // the last line that was read has a line break
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
		if err := any(&v).(json.Unmarshaler).UnmarshalJSON(in.Bytes()); err != nil { // all kinds have it
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
