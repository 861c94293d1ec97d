package samples

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/troupe-ml/troupe/internal/strictjson"
	"github.com/troupe-ml/troupe/internal/sysinfo"
)

// file is read once, from its beginning to its end.
type file struct {
	name  string
	bytes int64 // of the content; -1: it is compressed, nobody knows
	f     *os.File
	r     io.Reader
	zip   bool
}

// openFile opens a regular file, and what is in one that gzip has compressed. It doesn't open
// others: opening a pipe would wait for its writer.
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
	buffered := bufio.NewReaderSize(f, 1<<16)
	opened = &file{name: name, bytes: info.Size(), f: f, r: buffered}
	if head, err := buffered.Peek(2); err == nil && head[0] == 0x1f && head[1] == 0x8b {
		unzipped, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, opened.unzipping(err)
		}
		opened.r, opened.bytes, opened.zip = unzipped, -1, true
	}
	return opened, nil
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

// unzipping is about a compressed file. Whoever looks for io.ErrUnexpectedEOF asks
// whether a file became shorter while it was read.
func (f *file) unzipping(err error) error {
	var system *os.PathError
	if errors.As(err, &system) {
		return fmt.Errorf("data file: %w", err)
	}
	return fmt.Errorf("%w: unpacking %s: %s: the file is cut short or damaged; get it again", ErrFormat, strictjson.Plain(f.name), err.Error())
}

func (f *file) close() { _ = f.f.Close() } // nothing was written

// memory is what the samples may take together.
type memory struct{ bytes, most int64 }

func newMemory() *memory {
	most := sysinfo.MachineBytes()
	if most == 0 { // which nobody knows
		most = math.MaxInt64
	}
	return &memory{most: most}
}

func (m *memory) take(bytes int64) error {
	if bytes > m.most-m.bytes {
		return fmt.Errorf("%w: the samples take more than the %d bytes of this machine's memory: use less data, or register a format that reads it from the disk", ErrOptions, m.most)
	}
	m.bytes += bytes
	return nil
}
