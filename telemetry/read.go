package telemetry

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/troupe-ml/troupe/internal/folder"
)

// maxLineBytes is the longest line that is read; a record has some 300 bytes.
const maxLineBytes = 1 << 20

// advice is what a person can do about a row that is no record.
const advice = "correct or remove that row, or move the file away"

// Read returns the records of a metrics.jsonl. A last line that is cut short, as
// a crash leaves it, is not one of them.
func Read(path string) (all []Record, err error) {
	fsys, err := folder.Open(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", folder.Unreadable(err))
	}
	defer func() { err = errors.Join(err, fsys.Close()) }()
	return ReadFrom(fsys, filepath.Base(path))
}

// ReadFrom is Read for a file of an open folder.
func ReadFrom(fsys folder.FS, name string) ([]Record, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", folder.Unreadable(err))
	}
	defer func() { _ = f.Close() }() // nothing was written
	from, err := folder.Whole(f)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	var all []Record
	err = scan(from, func(r Record, _ []byte) error {
		all = append(all, r)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("metrics: %s: %w", fsys.Path(name), err)
	}
	return all, nil
}

// scan calls use with every record and its line, without the line's end. It
// stops silently at a last line that lacks its end and is no record.
func scan(from io.Reader, use func(r Record, text []byte) error) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxLineBytes)
	ended := true // the line that was read last
	lines.Split(func(data []byte, atEOF bool) (int, []byte, error) {
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
	for lines.Scan() {
		row++
		var r Record
		if err := r.UnmarshalJSON(lines.Bytes()); err != nil {
			if !ended {
				return nil
			}
			return fmt.Errorf("row %d: %w; %s", row, err, advice)
		}
		if err := use(r, lines.Bytes()); err != nil {
			return err
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return fmt.Errorf("row %d has more than %d bytes; %s", row+1, maxLineBytes, advice)
	} else if err != nil {
		return fmt.Errorf("row %d: %w", row+1, err)
	}
	return nil
}
