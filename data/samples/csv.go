package samples

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/troupe-ml/troupe/internal/base/strictjson"
	"github.com/troupe-ml/troupe/internal/data"
	"github.com/troupe-ml/troupe/tensorops"
)

// csvTable reads CSV files into one table. The features are a vector, and so are targets; a label
// is a number.
type csvTable struct {
	options  Options
	rowBytes int64
	scale    float64
	memory   *memory
	labels   *labels
	header   []string // header of the first file
	x, y     *column
	features []string // feature names of the first file
	rows     int
}

func openCSV(o Options) (*table, error) { return openCSVUpTo(o, limitRowBytes) }

// openCSVUpTo is openCSV with a limit on the length of a row.
func openCSVUpTo(o Options, rowBytes int64) (*table, error) {
	c := &csvTable{options: o, rowBytes: rowBytes, scale: orElse(o.Scale, 1), memory: newMemory(), labels: newLabels(o)}
	c.x = &column{Field: Field{Name: o.featureField(), DType: tensorops.Float32}}
	t := &table{columns: []*column{c.x}}
	switch {
	case o.Label != "":
		c.y = &column{Field: Field{Name: o.labelField(), DType: tensorops.Int32}}
	case len(o.Targets) > 0:
		c.y = &column{Field: Field{Name: o.labelField(), DType: tensorops.Float32, Shape: []int{len(o.Targets)}}}
	}
	if c.y != nil {
		t.columns = append(t.columns, c.y)
	}
	for _, name := range o.Files {
		if err := c.read(name); err != nil {
			return nil, err
		}
	}
	if c.rows == 0 {
		return nil, fmt.Errorf("%w: %s has no row after its header", data.ErrEmpty, listFiles(o.Files))
	}
	c.x.Shape = []int{len(c.features)}
	t.n, t.settled = c.rows, o
	t.settled.Features = c.features
	if o.Label != "" {
		c.y.Classes, t.names = c.labels.finish(c.y.ints)
		t.settled.Classes, t.settled.ClassNames = c.y.Classes, t.names
	}
	return t, t.finish()
}

func (c *csvTable) read(name string) error {
	f, err := openFile(name)
	if err != nil {
		return err
	}
	defer f.close()
	content, err := f.text()
	if err != nil {
		return err
	}
	rows := &rowReader{name: name, rowBytes: c.rowBytes, limited: &io.LimitedReader{R: content}}
	rows.csv = csv.NewReader(rows.limited)
	rows.csv.FieldsPerRecord, rows.csv.ReuseRecord = -1, true
	if c.options.Separator != "" {
		mark, size := utf8.DecodeRuneInString(c.options.Separator)
		if size != len(c.options.Separator) || mark == utf8.RuneError || strings.ContainsRune("\"\r\n\x00", mark) {
			return fmt.Errorf("%w: data.separator is %s: it must be one character, such as \";\" or a tab", ErrOptions, shown(c.options.Separator))
		}
		rows.csv.Comma = mark
	}

	row, err := rows.next()
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: %s has no row", data.ErrEmpty, strictjson.Plain(name))
	}
	if err != nil {
		return err
	}
	header := make([]string, len(row))
	for i, cell := range row {
		if header[i] = strconv.Itoa(i + 1); c.options.Header {
			header[i] = strings.TrimSpace(cell)
		}
	}
	if len(header) > limitColumns {
		return rows.fail(-1, "", fmt.Errorf("%w: the file has %d columns; the limit is %d", ErrFormat, len(header), limitColumns))
	}
	chosen, err := c.choose(header)
	if err != nil {
		return rows.fail(-1, "", err)
	}
	if c.options.Header {
		row, err = rows.next()
	}
	for ; err == nil; row, err = rows.next() {
		if len(row) != len(header) {
			return rows.fail(-1, "",
				fmt.Errorf("%w: the row has %d columns, but the first row has %d: the file is truncated there, or a cell contains a separator and has no quotes",
					ErrFormat, len(row), len(header)))
		}
		if err := c.add(rows, header, row, chosen); err != nil {
			return err
		}
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// add adds a row.
func (c *csvTable) add(rows *rowReader, header, row []string, chosen chosenColumns) error {
	if err := c.memory.take(4 * int64(len(chosen.features)+len(chosen.targets)+1)); err != nil {
		return rows.fail(-1, "", err)
	}
	for _, i := range chosen.features {
		v, err := c.number(row[i], c.scale)
		if err != nil {
			return rows.fail(i, header[i], fmt.Errorf("%w: %s", err, c.hint()))
		}
		c.x.float = append(c.x.float, v)
	}
	for _, i := range chosen.targets {
		v, err := c.number(row[i], 1)
		if err != nil {
			return rows.fail(i, header[i], err)
		}
		c.y.float = append(c.y.float, v)
	}
	if i := chosen.label; i >= 0 {
		id, err := c.labels.id(strings.TrimSpace(row[i]), rows.place(i, header[i]))
		if err != nil {
			return rows.fail(i, header[i], err)
		}
		c.y.ints = append(c.y.ints, id)
	}
	c.rows++
	return nil
}

func (c *csvTable) number(cell string, scale float64) (float32, error) {
	cell = strings.TrimSpace(cell)
	if cell == "" {
		return 0, fmt.Errorf("%w: the cell is empty, want a number", ErrFormat)
	}
	v, ok := parseNumber(cell)
	if !ok {
		return 0, fmt.Errorf("%w: found %s, which is not a finite number", ErrFormat, shown(cell))
	}
	f, ok := scaled(v, scale)
	if !ok {
		return 0, fmt.Errorf("%w: found %s, which is too large for float32", ErrFormat, shown(cell))
	}
	return f, nil
}

// hint suggests how to fix a feature that is not a number.
func (c *csvTable) hint() string {
	if !c.options.Header && c.rows == 0 {
		return "set data.header = true if the first row names the columns, or choose columns by data.features"
	}
	return "fix the row, or leave the column out of data.features"
}

// rowReader reads rows of CSV and knows its place in the file.
type rowReader struct {
	name     string
	csv      *csv.Reader
	limited  *io.LimitedReader
	rowBytes int64
	line     int // line in which the current row starts
}

// next reads a row, which is valid until the next call.
func (r *rowReader) next() ([]string, error) {
	// Data read ahead of this row is not counted; it is small.
	r.limited.N = r.rowBytes
	row, err := r.csv.Read()
	var syntax *csv.ParseError
	switch {
	case r.limited.N <= 0:
		return nil, &PlaceError{File: r.name, Line: r.line + 1,
			Err: fmt.Errorf("%w: the row has more than %d bytes: check for an unclosed quote, and whether the file is CSV", ErrFormat, r.rowBytes)}
	case errors.As(err, &syntax):
		at := &PlaceError{File: r.name, Line: syntax.Line, Byte: int64(syntax.Column)}
		fix := "fix the line, or get the file again if it is truncated"
		if syntax.StartLine != syntax.Line {
			fix = fmt.Sprintf("its row starts in line %d; %s", syntax.StartLine, fix)
		}
		at.Err = fmt.Errorf("%w: %w: %s", ErrFormat, syntax.Err, fix)
		return nil, at
	case err == nil:
		r.line, _ = r.csv.FieldPos(0)
	}
	return row, err
}

// place returns the place of a cell of the current row; for a column below 0, that of the row.
func (r *rowReader) place(column int, name string) PlaceError {
	at := PlaceError{File: r.name, Line: r.line}
	if column >= 0 {
		at.Line, _ = r.csv.FieldPos(column) // a cell in quotes may start in a later line
		if at.Column = column + 1; name != strconv.Itoa(column+1) {
			at.Name = name
		}
	}
	return at
}

func (r *rowReader) fail(column int, name string, err error) error {
	at := r.place(column, name)
	at.Err = err
	return &at
}
