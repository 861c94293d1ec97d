package parquet

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/format"
)

// page is what the header of a page states.
type page struct {
	kind                  int64
	packed, unpacked      int64 // bytes
	values                int64
	levels                int64 // bytes of levels before the values, which are not compressed
	repetition, defLevels int64
}

// Kinds of pages.
const (
	dataPage       = 0
	dictionaryPage = 2
	dataPageV2     = 3
)

// checkChunk walks over the pages of a column chunk and checks what their headers state, before the decoder allocates by it.
func checkChunk(r io.ReaderAt, end int64, chunk *format.ColumnChunk) error {
	m := &chunk.MetaData
	at := m.DataPageOffset
	if d := m.DictionaryPageOffset; d != 0 {
		at = d
	}
	size := m.TotalCompressedSize
	if chunk.FilePath != "" {
		return fmt.Errorf("its data is in another file, %.100q; copy it into this one", chunk.FilePath)
	}
	if at < 4 || size < 0 || at > end || size > end-at || m.DataPageOffset < at || m.DataPageOffset > at+size {
		return fmt.Errorf("its pages are said to lie in %d bytes from byte %d on, but the file has %d bytes of pages", size, at, end)
	}
	values, buf := int64(0), make([]byte, 0, 1<<10)
	for stop := at + size; at < stop && values < m.NumValues; {
		p, n, err := readPageHeader(r, at, stop, &buf)
		if err != nil {
			return fmt.Errorf("the page at byte %d: %w", at, err)
		}
		at += n
		if err := p.check(stop - at); err != nil {
			return fmt.Errorf("the page at byte %d: %w", at-n, err)
		}
		if p.kind != dictionaryPage {
			values += p.values
		}
		if err := p.checkPacked(r, at, m.Codec); err != nil {
			return fmt.Errorf("the page at byte %d: %w", at-n, err)
		}
		at += p.packed
	}
	if values != m.NumValues {
		return fmt.Errorf("its pages have %d values, but the footer says %d", values, m.NumValues)
	}
	return nil
}

// readPageHeader reads the header at a byte and returns its length.
func readPageHeader(r io.ReaderAt, at, stop int64, buf *[]byte) (p page, n int64, err error) {
	for want := int64(256); ; want *= 8 {
		want = min(want, stop-at, limitHeaderBytes)
		*buf = slices.Grow((*buf)[:0], int(want))[:want]
		if _, err := r.ReadAt(*buf, at); err != nil {
			return p, 0, noEOF(err)
		}
		p = page{kind: -1}
		length, err := walkStruct(*buf, p.note)
		if err == nil {
			return p, int64(length), nil
		}
		if !errors.Is(err, errShort) || want == stop-at || want == limitHeaderBytes {
			return p, 0, fmt.Errorf("its header is damaged: %w", err)
		}
	}
}

// note takes a number of a page's header.
func (p *page) note(path []int16, v int64) {
	switch len(path) {
	case 1:
		switch path[0] {
		case 1:
			p.kind = v
		case 2:
			p.unpacked = v
		case 3:
			p.packed = v
		}
	case 2:
		switch path[0] {
		case 5, 7, 8: // the headers of the three kinds
			if path[1] == 1 {
				p.values = v
			}
		}
		if path[0] == 8 {
			switch path[1] {
			case 5:
				p.defLevels = v
			case 6:
				p.repetition = v
			}
		}
	}
}

// check checks a page of which the file has left bytes.
func (p *page) check(left int64) error {
	p.levels = p.defLevels + p.repetition
	switch {
	case p.kind != dataPage && p.kind != dictionaryPage && p.kind != dataPageV2 && p.kind != 1:
		return fmt.Errorf("it has the unknown kind %d", p.kind)
	case p.packed < 0 || p.packed > left:
		return fmt.Errorf("it is said to have %d bytes, but only %d are left", p.packed, left)
	case p.packed > limitPageBytes || p.unpacked < 0 || p.unpacked > limitPageBytes:
		return fmt.Errorf("it is said to have %d bytes, %d decompressed; the limit is %d", p.packed, p.unpacked, int64(limitPageBytes))
	case p.values < 0 || p.values > limitPageValues:
		return fmt.Errorf("it is said to have %d values; the limit is %d", p.values, int64(limitPageValues))
	case p.defLevels < 0 || p.repetition < 0 || p.levels > p.packed || p.levels > p.unpacked:
		return fmt.Errorf("it is said to have %d bytes of levels in %d bytes", p.levels, p.packed)
	}
	return nil
}

// checkPacked checks that compressed values do not state more bytes than the page's header: the decoders allocate what the
// values state.
func (p *page) checkPacked(r io.ReaderAt, at int64, codec format.CompressionCodec) error {
	if codec != format.Snappy && codec != format.Zstd {
		return nil
	}
	levels := int64(0)
	if p.kind == dataPageV2 {
		levels = p.levels
	}
	head := make([]byte, min(p.packed-levels, zstd.HeaderMaxSize))
	if len(head) == 0 {
		return nil
	}
	if _, err := r.ReadAt(head, at+levels); err != nil {
		return noEOF(err)
	}
	stated := int64(0)
	if codec == format.Snappy {
		if n, err := snappy.DecodedLen(head); err == nil { // the decoder reports an error
			stated = int64(n)
		}
	} else {
		var h zstd.Header
		if err := h.Decode(head); err == nil && h.HasFCS {
			stated = int64(min(h.FrameContentSize, 1<<62))
		}
	}
	if stated > limitPageBytes {
		return fmt.Errorf("its compressed values are said to have %d bytes; the limit is %d", stated, int64(limitPageBytes))
	}
	return nil
}

// noEOF makes an error of the end of a file: bytes are missing.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
