package data

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"unicode/utf8"
)

// Row is a line of a file of JSON lines, or a row of a table as such a line.
type Row struct {
	File int // its number among the files
	Row  int // from 1
	Line []byte
}

// Rows reads the rows of files one after the other, so that memory does not limit their size. It is not safe for concurrent
// use.
type Rows struct {
	files   []string
	columns []string
	infos   []os.FileInfo // of the files when they were opened first
	at      int           // the open file
	row     int           // the last row of it
	table   *table
	lines   *bufio.Reader
	end     func()
	buf     []byte
}

// OpenRows starts at the row after a row of a file; 0, 0: at the start. columns are those of tables that are read: see
// parquet.Open. A file that changes while it is read is an error.
func OpenRows(files, columns []string, file, row int) (*Rows, error) {
	r := &Rows{files: files, columns: columns, infos: make([]os.FileInfo, len(files)), at: file - 1, row: row}
	for i, name := range files {
		if _, err := fileSize(name); err != nil {
			return nil, fmt.Errorf("data file: %w", err)
		}
		info, err := os.Stat(name)
		if err != nil {
			return nil, fmt.Errorf("data file: %w", plainError(err))
		}
		r.infos[i] = info
	}
	return r, r.open(row)
}

// open opens the next file after some of its rows.
func (r *Rows) open(after int) error {
	r.Close()
	if r.at++; r.at >= len(r.files) {
		return nil
	}
	name := r.files[r.at]
	info, err := os.Stat(name)
	if err != nil {
		return fmt.Errorf("data file: %w", plainError(err))
	}
	if was := r.infos[r.at]; info.Size() != was.Size() || !info.ModTime().Equal(was.ModTime()) {
		return fmt.Errorf("data file: %s was changed since the run started; restore it, and start the run again", plain(name))
	}
	r.row = 0
	if err := r.openFile(name); err != nil {
		return fmt.Errorf("data file: %w", err)
	}
	if r.table != nil {
		if err := r.table.rows.Skip(int64(after)); err != nil {
			return fmt.Errorf("data file: %s: %w", plain(name), err)
		}
		r.row = after
		return nil
	}
	for r.row < after {
		if _, err := r.line(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
	}
	return nil
}

func (r *Rows) openFile(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return plainError(err)
	}
	shut := func() { _ = f.Close() } // nothing was written
	r.end = shut
	in := bufio.NewReaderSize(f, 1<<18)
	head, err := in.Peek(headBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	is, err := isTable(name, head)
	if err != nil {
		return err
	}
	if is {
		r.table, err = openTable(name, r.columns)
		return err
	}
	content, packed, end, err := Unpacked(name, in)
	if err != nil {
		return err
	}
	if r.lines = in; packed {
		r.lines = bufio.NewReaderSize(content, 1<<18)
		r.end = func() { end(); shut() }
		if head, err = r.lines.Peek(headBytes); err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("%s: %w: the file is damaged or truncated", plain(name), err)
		}
	}
	if err := NotText(name, head); err != nil {
		return err
	}
	if bytes.HasPrefix(head, byteOrderMark) {
		if _, err := r.lines.Discard(len(byteOrderMark)); err != nil {
			return err
		}
	}
	return nil
}

// Next returns the next row that is not blank; io.EOF: there are no more. Its line is valid until the next call.
func (r *Rows) Next() (Row, error) {
	for r.at < len(r.files) {
		var line []byte
		var err error
		if r.table != nil {
			if line, err = r.table.next(); err == nil {
				r.row++
			}
		} else {
			line, err = r.line()
		}
		switch {
		case errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
			if err := r.open(0); err != nil {
				return Row{}, err
			}
		case err != nil:
			return Row{}, err
		case len(bytes.TrimSpace(line)) > 0:
			return Row{r.at, r.row, line}, nil
		}
	}
	return Row{}, io.EOF
}

// line reads the next line without its end.
func (r *Rows) line() ([]byte, error) {
	name, row := plain(r.files[r.at]), r.row+1
	r.buf = r.buf[:0]
	for {
		part, err := r.lines.ReadSlice('\n')
		r.buf = append(r.buf, part...)
		if len(r.buf) > MaxLineBytes {
			return nil, fmt.Errorf("%s, row %d: it has more than %d bytes, which is the limit", name, row, MaxLineBytes)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
			if len(r.buf) == 0 {
				return nil, io.EOF
			}
		case err != nil:
			return nil, fmt.Errorf("%s, row %d: %w: the file is damaged or truncated", name, row, err)
		}
		break
	}
	r.row = row
	line := bytes.TrimRight(r.buf, "\r\n")
	if !utf8.Valid(line) {
		at, err := notUTF8(line)
		return nil, fmt.Errorf("%s, row %d, byte %d of the row: %w", name, row, at, err)
	}
	return line, nil
}

// Close closes the open file.
func (r *Rows) Close() {
	if r.table != nil {
		r.table.close()
	}
	if r.end != nil {
		r.end()
	}
	r.table, r.end, r.lines = nil, nil, nil
}
