package rundir

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/troupe-ml/troupe/internal/host/folder"
)

// tail reads the lines of a file that another process appends to. It leaves a last line without its end
// for the next call.
type tail struct {
	fsys  folder.FS
	name  string
	limit int // bytes of a line

	at    int64  // where the next line begins
	first []byte // the start of the file, to recognize it
	info  fs.FileInfo
	parts int // of the file's bytes at a time
}

func newTail(fsys folder.FS, name string, limit int) *tail {
	return &tail{fsys: fsys, name: name, limit: limit, parts: tailPartBytes}
}

// read calls use with each new line and its position. It calls reset first if the file was replaced
// or cut. A missing file has no lines.
func (t *tail) read(reset func(), use func(at int64, line []byte) error) error {
	f, err := t.fsys.Open(t.name)
	if errors.Is(err, fs.ErrNotExist) {
		if t.at > 0 {
			t.restart(reset)
		}
		return nil
	}
	if err != nil {
		return folder.Unreadable(err)
	}
	defer func() { _ = f.Close() }() // nothing was written
	info, err := f.Stat()
	if err != nil {
		return folder.Unreadable(err)
	}
	if t.at > 0 && !t.same(f, info) {
		t.restart(reset)
	}
	if t.info = info; t.at == 0 {
		t.first = make([]byte, min(info.Size(), 256))
		n, err := f.ReadAt(t.first, 0)
		if t.first = t.first[:n]; err != nil && !errors.Is(err, io.EOF) {
			return folder.Unreadable(err)
		}
	}
	for t.at < info.Size() {
		n, err := t.part(f, info.Size(), use)
		if err != nil || n == 0 {
			return err
		}
	}
	return nil
}

// part reads the lines of a part of the file and returns their size in bytes.
func (t *tail) part(f folder.File, size int64, use func(at int64, line []byte) error) (int64, error) {
	for length := min(size-t.at, int64(t.parts)); ; length = min(size-t.at, 2*length) {
		data := make([]byte, length)
		n, err := f.ReadAt(data, t.at)
		if data = data[:n]; err != nil && !errors.Is(err, io.EOF) {
			return 0, folder.Unreadable(err)
		}
		var done int64
		for {
			end := bytes.IndexByte(data[done:], '\n')
			if end < 0 {
				break
			}
			line := data[done : done+int64(end)]
			if len(line) > t.limit {
				return 0, t.tooLong()
			}
			if err := use(t.at+done, line); err != nil {
				return 0, err
			}
			done += int64(end) + 1
		}
		if done > 0 || t.at+int64(n) >= size {
			t.at += done
			return done, nil
		}
		if n > t.limit {
			return 0, t.tooLong()
		}
	}
}

func (t *tail) tooLong() error {
	return fmt.Errorf("%s: the line at byte %d has more than %d bytes", t.fsys.Path(t.name), t.at, t.limit)
}

// same reports whether the file is the one that was read before, perhaps with more lines.
func (t *tail) same(f folder.File, info fs.FileInfo) bool {
	if info.Size() < t.at || t.info != nil && !os.SameFile(t.info, info) {
		return false
	}
	now := make([]byte, len(t.first))
	n, _ := f.ReadAt(now, 0)
	return bytes.Equal(now[:n], t.first)
}

func (t *tail) restart(reset func()) {
	t.at, t.first, t.info = 0, nil, nil
	reset()
}
