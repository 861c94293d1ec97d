package data

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// packing is a supported compression, identified by the start of a file: names prove nothing.
type packing struct {
	name   string
	suffix string
	begins func(head []byte) bool
	open   func(r io.Reader) (in io.Reader, end func(), err error)
}

var packings = []packing{
	{"gzip", ".gz", func(head []byte) bool { return bytes.HasPrefix(head, []byte{0x1f, 0x8b}) }, func(r io.Reader) (io.Reader, func(), error) {
		in, err := openGzip(r)
		return in, func() {}, err
	}},
	{"zstd", ".zst", zstdBegins, func(r io.Reader) (io.Reader, func(), error) {
		d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(1<<30))
		if err != nil {
			return nil, nil, err
		}
		return d, d.Close, nil
	}},
}

// zstdBegins detects a frame, or a skippable frame, which may come first.
func zstdBegins(head []byte) bool {
	return bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}) || len(head) >= 4 && head[0]&0xf0 == 0x50 &&
		string(head[1:4]) == "\x2a\x4d\x18"
}

// packingOf returns how a file is compressed; nil: it is not. It refuses a file that only its name
// claims to be compressed.
func packingOf(name string, head []byte) (*packing, error) {
	for i := range packings {
		if packings[i].begins(head) {
			return &packings[i], nil
		}
	}
	for i := range packings {
		if p := &packings[i]; strings.EqualFold(suffixOf(name, len(p.suffix)), p.suffix) {
			return nil,
				fmt.Errorf("%s has the name of a file compressed with %s, but its content does not start like one: it is damaged or has another format; rename it, or get it again", plain(name), p.name)
		}
	}
	return nil, nil
}

func suffixOf(name string, n int) string { return name[max(0, len(name)-n):] }

// Unpacked returns the content of a file, decompressed if it was compressed with gzip or zstd; of a
// Parquet file, its rows as JSON lines. end frees the resources. It refuses files that are compressed twice.
func Unpacked(name string, in *bufio.Reader) (content io.Reader, packed bool, end func(), err error) {
	head, err := in.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, false, nil, err
	}
	if head, err := in.Peek(min(in.Size(), headBytes)); err == nil || errors.Is(err, io.EOF) {
		if is, err := isTable(name, head); is || err != nil {
			return unpackedTable(name, err)
		}
	}
	p, err := packingOf(name, head)
	if err != nil || p == nil {
		return in, false, func() {}, err
	}
	out, end, err := p.open(in)
	if err != nil {
		return nil, true, nil, fmt.Errorf("%s: %w", plain(name), err)
	}
	inside := bufio.NewReaderSize(out, headBytes)
	head, err = inside.Peek(4) // its error is reported when reading
	for _, q := range packings {
		if err == nil && q.begins(head) {
			end()
			return nil, true, nil, fmt.Errorf("%s is compressed twice, with %s and with %s inside: decompress it once", plain(name), p.name, q.name)
		}
	}
	return inside, true, end, nil
}

// unpackedTable is Unpacked for a Parquet file, which is not read from its start to its end.
func unpackedTable(name string, err error) (content io.Reader, packed bool, end func(), _ error) {
	if err != nil {
		return nil, false, nil, err
	}
	t, err := openTable(name, nil)
	if err != nil {
		return nil, true, nil, err
	}
	return t, true, t.close, nil
}

// unpack reads a whole compressed file with at most most bytes of content.
func unpack(name string, most int64) (text []byte, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, plainError(err)
	}
	defer func() { _ = f.Close() }() // nothing was written
	in, _, end, err := Unpacked(name, bufio.NewReader(f))
	if err != nil {
		return nil, err
	}
	defer end()
	var b bytes.Buffer
	n, err := io.Copy(&b, io.LimitReader(in, most+1))
	if err != nil {
		return nil, fmt.Errorf("%s, after %d bytes of its content: %w: the file is damaged or truncated", plain(name), n, err)
	}
	if n > most {
		return nil, fmt.Errorf("%s holds more than the %d bytes of memory that are left: use less text", plain(name), most)
	}
	return b.Bytes(), nil
}
