package folder

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
)

// ErrUnreadable: something is there, and can't be read as things are. It says
// nothing about whether the content is good.
var ErrUnreadable = errors.New("cannot be read at the moment")

// Unreadable marks an error of reading with ErrUnreadable, unless it says that there
// is nothing to read.
func Unreadable(err error) error {
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrUnreadable) {
		return err
	}
	return &unreadable{err}
}

// unreadable has the text of its cause alone, which says it better.
type unreadable struct{ cause error }

func (u *unreadable) Error() string   { return u.cause.Error() }
func (u *unreadable) Unwrap() []error { return []error{ErrUnreadable, u.cause} }

// ReadFile reads a whole file of at most limit bytes. An error is ErrUnreadable,
// also when the reads give less than the system says there is; that there is no file
// is fs.ErrNotExist.
func ReadFile(f FS, name string, limit int64) (data []byte, err error) {
	file, err := f.Open(name)
	if err != nil {
		return nil, Unreadable(err)
	}
	data, err = ReadAll(file, limit)
	return data, errors.Join(err, Unreadable(file.Close()))
}

// ReadAll is ReadFile for an open file, at any read position.
func ReadAll(file File, limit int64) ([]byte, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, Unreadable(err)
	}
	if info.Size() > limit {
		return nil, Unreadable(fmt.Errorf("%s has %d bytes, but the limit is %d", file.Name(), info.Size(), limit))
	}
	data := make([]byte, info.Size())
	n, err := file.ReadAt(data, 0)
	if n < len(data) && (err == nil || errors.Is(err, io.EOF)) {
		err = short(file, int64(n), info.Size())
	}
	if n < len(data) {
		return nil, Unreadable(err)
	}
	return data, nil
}

// short is the error about reads that end before the size that the system has told.
func short(file File, read, size int64) error {
	return fmt.Errorf("%s: read %d bytes, but the system reports %d: %w", file.Name(), read, size, io.ErrUnexpectedEOF)
}

// Whole reads a file that no process shortens meanwhile. Where its reads end before the
// size that the system has told, which proves nothing about the file, the error is
// io.ErrUnexpectedEOF instead of io.EOF.
func Whole(file File) (io.Reader, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, Unreadable(err)
	}
	return &whole{file: file, size: info.Size()}, nil
}

type whole struct {
	file       File
	read, size int64
}

func (w *whole) Read(p []byte) (int, error) {
	n, err := w.file.Read(p)
	w.read += int64(n)
	if errors.Is(err, io.EOF) && w.read < w.size {
		err = short(w.file, w.read, w.size)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = Unreadable(err)
	}
	return n, err
}
