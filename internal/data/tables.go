package data

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/troupe-ml/troupe/internal/parquet"
)

const parquetSuffix = ".parquet"

// isTable reports whether a file is a Parquet file, whose rows are read as JSON lines. It refuses a file that only its name
// claims to be one.
func isTable(name string, head []byte) (bool, error) {
	named := strings.EqualFold(suffixOf(name, len(parquetSuffix)), parquetSuffix)
	if bytes.HasPrefix(head, []byte(parquet.Magic)) && (named || !proseWith(parquet.Magic, head)) {
		return true, nil
	}
	if !named {
		return false, nil
	}
	if bytes.HasPrefix(head, []byte("version https://git-lfs")) {
		return false, fmt.Errorf("%s is only a pointer to the file: fetch it with git lfs pull, or with hf download", plain(name))
	}
	return false,
		fmt.Errorf("%s has the name of a Parquet file, but its content does not start like one: it is damaged or has another format; get it again", plain(name))
}

// IsTable reports whether a file is a Parquet file.
func IsTable(name string) (bool, error) {
	size, err := fileSize(name)
	if err != nil {
		return false, err
	}
	head := make([]byte, min(size, headBytes))
	if _, err := readFile(name, 0, head); err != nil {
		return false, err
	}
	return isTable(name, head)
}

// table is the content of a Parquet file as JSON lines. Errors name the file and the row.
type table struct {
	name string
	f    *os.File
	rows *parquet.Reader
	line []byte // what is left of the current row
	buf  []byte
	err  error
}

// openTable opens a file; see parquet.Open for columns.
func openTable(name string, columns []string) (t *table, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, plainError(err)
	}
	defer func() {
		if err != nil {
			_ = f.Close() // nothing was written
		}
	}()
	info, err := f.Stat()
	if err != nil {
		return nil, plainError(err)
	}
	rows, err := parquet.Open(f, info.Size(), columns)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", plain(name), err)
	}
	return &table{name: name, f: f, rows: rows}, nil
}

// next returns the next row, valid until the next call.
func (t *table) next() ([]byte, error) {
	line, err := t.rows.Next(t.buf[:0])
	if err != nil {
		if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, io.EOF
		}
		return nil, fmt.Errorf("%s, row %d: %w", plain(t.name), t.rows.Row()+1, err)
	}
	t.buf = line
	return line, nil
}

func (t *table) Read(p []byte) (n int, err error) {
	for n < len(p) {
		if len(t.line) == 0 {
			if t.err == nil {
				t.line, t.err = t.next()
			}
			if t.err != nil {
				break
			}
			t.buf = append(t.line, '\n')
			t.line = t.buf
		}
		k := copy(p[n:], t.line)
		n, t.line = n+k, t.line[k:]
	}
	if n > 0 {
		return n, nil
	}
	return 0, t.err
}

func (t *table) close() {
	t.rows.Close()
	_ = t.f.Close() // nothing was written
}

// readTable reads a whole table as at most most bytes of JSON lines.
func readTable(name string, columns []string, most int64) ([]byte, error) {
	t, err := openTable(name, columns)
	if err != nil {
		return nil, err
	}
	defer t.close()
	var all []byte
	for {
		line, err := t.next()
		if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		if all = append(append(all, line...), '\n'); int64(len(all)) > most {
			return nil, fmt.Errorf("%s holds more than the %d bytes of memory that are left: set data.stream = true", plain(name), most)
		}
	}
}
