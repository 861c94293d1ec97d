package samples

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/troupe-ml/troupe/internal/base/strictjson"
	"github.com/troupe-ml/troupe/internal/data"
	"github.com/troupe-ml/troupe/internal/host/sysinfo"
)

// file is read once, from start to end.
type file struct {
	name  string
	bytes int64 // size of the content; -1: unknown, since it is compressed
	f     *os.File
	r     io.Reader
	zip   bool
	end   func() // ends the decompression
}

// openFile opens a regular file, and decompresses it if it was compressed with gzip or zstd. It
// refuses other files: opening a pipe would wait for its writer.
func openFile(name string) (opened *file, err error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("data file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: %s is not a regular file", ErrOptions, strictjson.Plain(name))
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("data file: %w", err)
	}
	defer func() {
		if err != nil {
			_ = f.Close() // nothing was written
		}
	}()
	opened = &file{name: name, bytes: info.Size(), f: f, end: func() {}}
	content, packed, end, err := data.Unpacked(name, bufio.NewReaderSize(f, 1<<16))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if opened.r, opened.end = content, end; packed {
		opened.bytes, opened.zip = -1, true
	}
	return opened, nil
}

// text returns the content of the file, which must start as UTF-8 text, without its byte order
// mark.
func (f *file) text() (*bufio.Reader, error) {
	content := bufio.NewReaderSize(f, 1<<12)
	head, err := content.Peek(1 << 12)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if err := data.NotText(f.name, head); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if mark := []byte("\ufeff"); bytes.HasPrefix(head, mark) {
		_, _ = content.Discard(len(mark)) // Peek has just read it
	}
	return content, nil
}

func (f *file) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	switch {
	case err == nil || errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
	case f.zip:
		err = f.unzipping(err)
	default:
		err = fmt.Errorf("data file: %w", err)
	}
	return n, err
}

// unzipping returns the error of a compressed file. It does not wrap io.ErrUnexpectedEOF, which
// would mean that a file became shorter while it was read.
func (f *file) unzipping(err error) error {
	var system *os.PathError
	if errors.As(err, &system) {
		return fmt.Errorf("data file: %w", err)
	}
	return fmt.Errorf("%w: decompressing %s: %s: the file is truncated or damaged; get it again", ErrFormat, strictjson.Plain(f.name),
		err.Error())
}

func (f *file) close() {
	f.end()
	_ = f.f.Close() // nothing was written
}

// memory limits what all samples together may take.
type memory struct{ bytes, most int64 }

func newMemory() *memory {
	most := sysinfo.MachineBytes()
	if most == 0 { // unknown
		most = math.MaxInt64
	}
	return &memory{most: most}
}

func (m *memory) take(bytes int64) error {
	if bytes > m.most-m.bytes {
		return fmt.Errorf("%w: the samples take more than the %d bytes of this machine's memory: use less data, or register a format that reads it from disk", ErrOptions, m.most)
	}
	m.bytes += bytes
	return nil
}
