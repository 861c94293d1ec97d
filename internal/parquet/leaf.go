package parquet

import (
	"errors"
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go"
)

// leafReader reads the values of a column chunk, row by row.
type leafReader struct {
	pages  parquet.Pages
	page   parquet.Page
	values parquet.ValueReader
	buf    [256]parquet.Value
	at, n  int // values of buf that are not yet taken
	done   bool
	flat   bool // each row has one value
	out    []parquet.Value
}

// row returns the values of the next row: a first one with repetition level 0, and those that repeat it. They are valid until
// the next call.
func (l *leafReader) row() ([]parquet.Value, error) {
	l.out = l.out[:0]
	for {
		if l.at == l.n {
			if err := l.fill(); err != nil {
				if errors.Is(err, io.EOF) && len(l.out) > 0 {
					return l.out, nil
				}
				return nil, fmt.Errorf("%w: %w", ErrDamaged, noEOF(err))
			}
		}
		v := l.buf[l.at]
		if v.RepetitionLevel() == 0 && len(l.out) > 0 {
			return l.out, nil
		}
		if v.RepetitionLevel() != 0 && len(l.out) == 0 {
			return nil, errLevels
		}
		if len(l.out) >= limitPageValues {
			return nil, fmt.Errorf("the row has more than %d values", limitPageValues)
		}
		if l.out, l.at = append(l.out, v), l.at+1; l.flat {
			return l.out, nil
		}
	}
}

// fill reads further values into buf. Values of the current row are copied before the memory of their page is reused.
func (l *leafReader) fill() error {
	for {
		if l.done {
			return io.EOF
		}
		if l.values != nil {
			n, err := l.values.ReadValues(l.buf[:])
			l.at, l.n = 0, n
			if err != nil && !errors.Is(err, io.EOF) {
				return err
			}
			if err != nil {
				l.values = nil
			}
			if n > 0 {
				return nil
			}
			continue
		}
		for i := range l.out {
			l.out[i] = l.out[i].Clone()
		}
		parquet.Release(l.page)
		l.page = nil
		page, err := l.pages.ReadPage()
		if err != nil {
			l.done = true
			return err
		}
		l.page, l.values = page, page.Values()
	}
}

func (l *leafReader) close() {
	parquet.Release(l.page)
	l.page = nil
	_ = l.pages.Close() // it frees memory only
}
