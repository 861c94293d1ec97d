package safetensors

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/troupe-ml/troupe/internal/host/folder"
)

// File is an open file, mapped into memory. Its methods are safe for concurrent use; Close may be
// called only when no other call is in progress.
type File struct {
	*Header
	path    string
	content []byte // the whole file; nil once closed
}

// Open maps the file at path and checks its header. The file must not shrink while it is open: the
// operating system would kill a reader of the missing part.
func Open(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	file, err := FromFile(folder.Wrap(f))
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	return file, nil
}

// Source is an open file; folder.File is one.
type Source interface {
	io.ReaderAt
	Name() string
	Stat() (fs.FileInfo, error)
	// Map maps the first size bytes into memory; folder.Unmap unmaps them.
	Map(size int) ([]byte, error)
}

// FromFile is Open for an open file. The caller closes the file, and may do so at once.
func FromFile(f Source) (*File, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: %w: not a regular file", f.Name(), ErrFormat)
	}
	size := info.Size()
	// The header is checked with ordinary reads: a bad file is not mapped.
	header, err := Parse(f, size)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	if int64(int(size)) != size {
		return nil, fmt.Errorf("%s: the file has %d bytes, more than this machine can address", f.Name(), size)
	}
	content, err := f.Map(int(size))
	if err != nil {
		return nil, fmt.Errorf("%s: map %d bytes: %w", f.Name(), size, err)
	}
	return &File{Header: header, path: f.Name(), content: content}, nil
}

// Path returns the path with which the file was opened.
func (f *File) Path() string { return f.path }

// Bytes returns the tensor's bytes, little-endian. They are valid until Close
// and must not be written to.
func (f *File) Bytes(name string) ([]byte, error) {
	if f.content == nil {
		return nil, fmt.Errorf("%s: tensor %q: %w", f.path, name, os.ErrClosed)
	}
	info, ok := f.Info(name)
	if !ok {
		return nil, fmt.Errorf("%s has no tensor %q", f.path, name)
	}
	begin := f.data + info.Offset
	end := begin + info.Size
	return f.content[begin:end:end], nil
}

// Forget frees the memory of a tensor that was read. Its bytes stay valid: they are read from the file again.
func (f *File) Forget(name string) {
	if data, err := f.Bytes(name); err == nil {
		folder.Forget(data)
	}
}

// Close unmaps the file. Closing twice is harmless.
func (f *File) Close() error {
	content := f.content
	f.content = nil
	if content == nil {
		return nil
	}
	return folder.Unmap(content)
}
