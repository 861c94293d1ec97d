package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// ErrDamaged: a file is not a whole Parquet file.
var ErrDamaged = errors.New("the Parquet file is damaged or truncated")

// Magic begins and ends a Parquet file.
const Magic = "PAR1"

// Reader reads the rows of a file in order. It is not safe for concurrent use.
type Reader struct {
	r        io.ReaderAt
	pagesEnd int64 // the footer starts here
	file     *parquet.File
	top      []*node
	leaves   []*parquet.Column
	chunks   []*leafReader // of the row group that is being read
	group    int           // the number of the next one
	left     int64         // rows of the open one
	row      int64         // rows that were returned
	values   []span
}

// Open opens a file of size bytes. columns names the columns to read; none, or none that the file has, stands for all. Columns
// that hold images, audio or video are refused in any case.
func Open(r io.ReaderAt, size int64, columns []string) (_ *Reader, err error) {
	defer caughtDamage(&err)
	footer, err := checkFooter(r, size)
	if err != nil {
		return nil, err
	}
	file, err := parquet.OpenFile(r, size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
	if err != nil {
		return nil, fmt.Errorf("%w: its footer: %w", ErrDamaged, err)
	}
	p := &Reader{r: r, pagesEnd: size - footer - 8, file: file}
	if err := p.checkRows(); err != nil {
		return nil, err
	}
	if err := checkMedia(file); err != nil {
		return nil, err
	}
	return p, p.choose(columns)
}

// checkFooter checks the footer before anything is allocated by what it states, and returns its length.
func checkFooter(r io.ReaderAt, size int64) (int64, error) {
	const least = 4 + 4 + 4
	if size < least {
		return 0, fmt.Errorf("%w: it has %d bytes", ErrDamaged, size)
	}
	var ends [12]byte
	if _, err := r.ReadAt(ends[:4], 0); err != nil {
		return 0, noEOF(err)
	}
	if _, err := r.ReadAt(ends[4:], size-8); err != nil {
		return 0, noEOF(err)
	}
	if end := string(ends[8:]); end == "PARE" {
		return 0, errors.New("the Parquet file is encrypted; save it without encryption")
	} else if end != Magic || string(ends[:4]) != Magic {
		return 0, fmt.Errorf("%w: its %d bytes do not end with %q, so its footer is missing", ErrDamaged, size, Magic)
	}
	n := int64(binary.LittleEndian.Uint32(ends[4:8]))
	if n > size-least {
		return 0, fmt.Errorf("%w: its footer is said to have %d bytes, but the file has %d", ErrDamaged, n, size)
	}
	if n > limitFooterBytes {
		return 0, fmt.Errorf("the footer of the Parquet file has %d bytes; the limit is %d", n, limitFooterBytes)
	}
	footer := make([]byte, n)
	if _, err := r.ReadAt(footer, size-8-n); err != nil {
		return 0, noEOF(err)
	}
	bad := false
	if _, err := walkStruct(footer, func(path []int16, v int64) {
		// The number of a group's children, which are further elements of the schema.
		bad = bad || slices.Equal(path, []int16{2, 0, 5}) && (v < 0 || v > n)
	}); err != nil {
		return 0, fmt.Errorf("%w: its footer: %w", ErrDamaged, err)
	}
	if bad {
		return 0, fmt.Errorf("%w: its footer has a group with more columns than it can have", ErrDamaged)
	}
	return n, nil
}

// checkRows checks the numbers of rows.
func (p *Reader) checkRows() error {
	m, rows := p.file.Metadata(), int64(0)
	for i := range m.RowGroups {
		n := m.RowGroups[i].NumRows
		if n < 0 || n > m.NumRows-rows {
			return fmt.Errorf("%w: its footer says that row group %d has %d rows, and all have %d", ErrDamaged, i, n, m.NumRows)
		}
		rows += n
	}
	if rows != m.NumRows {
		return fmt.Errorf("%w: its row groups have %d rows, but its footer says %d", ErrDamaged, rows, m.NumRows)
	}
	return nil
}

// choose makes the nodes of the columns to read.
func (p *Reader) choose(columns []string) error {
	all := p.file.Root().Columns()
	some := slices.DeleteFunc(slices.Clone(all), func(c *parquet.Column) bool { return !slices.Contains(columns, c.Name()) })
	if len(some) == 0 {
		some = all
	}
	if len(some) == 0 {
		return errors.New("the Parquet file has no columns")
	}
	for _, c := range some {
		n, err := newNode(c, &p.leaves)
		if err != nil {
			return columnError(c.Name(), "%w", err)
		}
		p.top = append(p.top, n)
	}
	p.values = make([]span, len(p.leaves))
	return nil
}

// Rows returns the number of rows.
func (p *Reader) Rows() int64 { return p.file.NumRows() }

// Row returns the number of rows that were returned or skipped.
func (p *Reader) Row() int64 { return p.row }

// Next appends the next row as a JSON object; io.EOF: there are no more. Errors name the column.
func (p *Reader) Next(dst []byte) (_ []byte, err error) {
	defer caughtDamage(&err)
	if err := p.nextGroup(); err != nil {
		return dst, err
	}
	for i, c := range p.chunks {
		if p.values[i], err = c.row(); err != nil {
			return dst, columnError(p.leaves[i].Path()[0], "%w", err)
		}
	}
	start := len(dst)
	dst = append(dst, '{')
	for i, n := range p.top {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, n.quoted...)
		if dst, err = appendNode(dst, n, p.values[n.first:n.first+n.leaves]); err != nil {
			return dst, err
		}
		if len(dst)-start > limitRowBytes {
			return dst, columnError(n.name, "the row has more than %d bytes", limitRowBytes)
		}
	}
	p.left, p.row = p.left-1, p.row+1
	return append(dst, '}'), nil
}

// Skip skips up to n rows; whole row groups are not read.
func (p *Reader) Skip(n int64) (err error) {
	defer caughtDamage(&err)
	for n > 0 {
		if p.left == 0 {
			groups := p.file.Metadata().RowGroups
			for p.group < len(groups) && groups[p.group].NumRows <= n {
				n, p.row = n-groups[p.group].NumRows, p.row+groups[p.group].NumRows
				p.group++
			}
			if n == 0 || p.group == len(groups) {
				return nil
			}
		}
		if err := p.nextGroup(); err != nil {
			return err
		}
		for i, c := range p.chunks {
			if _, err = c.row(); err != nil {
				return columnError(p.leaves[i].Path()[0], "%w", err)
			}
		}
		p.left, p.row, n = p.left-1, p.row+1, n-1
	}
	return nil
}

// nextGroup opens the next row group if no row of the open one is left.
func (p *Reader) nextGroup() error {
	groups := p.file.RowGroups()
	for p.left == 0 {
		p.closeGroup()
		if p.group >= len(groups) {
			return io.EOF
		}
		g, m := groups[p.group], &p.file.Metadata().RowGroups[p.group]
		p.group++
		if p.left = m.NumRows; p.left == 0 {
			continue
		}
		chunks := g.ColumnChunks()
		for _, c := range p.leaves {
			i := c.Index()
			if i < 0 || i >= len(chunks) || i >= len(m.Columns) {
				return columnError(c.Path()[0], "%w: row group %d has no data of it", ErrDamaged, p.group-1)
			}
			if err := checkCodec(m.Columns[i].MetaData.Codec); err != nil {
				return columnError(c.Path()[0], "%w", err)
			}
			if err := checkChunk(p.r, p.pagesEnd, &m.Columns[i]); err != nil {
				return columnError(c.Path()[0], "%w: row group %d: %w", ErrDamaged, p.group-1, err)
			}
			p.chunks = append(p.chunks, &leafReader{pages: chunks[i].Pages(), flat: c.MaxRepetitionLevel() == 0})
		}
	}
	return nil
}

// checkCodec refuses a compression that the decoder does not know.
func checkCodec(codec format.CompressionCodec) error {
	switch codec {
	case format.Uncompressed, format.Snappy, format.Gzip, format.Brotli, format.Zstd, format.Lz4Raw:
		return nil
	}
	return fmt.Errorf("it is compressed with %s; save the file with snappy, zstd or gzip", codec)
}

func (p *Reader) closeGroup() {
	for _, c := range p.chunks {
		c.close()
	}
	p.chunks = p.chunks[:0]
}

// Close frees the open pages. The caller closes the file.
func (p *Reader) Close() { p.closeGroup() }

// caughtDamage makes an error of a panic of the decoder.
func caughtDamage(err *error) {
	if v := recover(); v != nil {
		*err = fmt.Errorf("%w: decoding it failed: %v", ErrDamaged, v)
	}
}
