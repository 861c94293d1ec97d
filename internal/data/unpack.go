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

// packing is a way of compressing files that is unpacked here, by what they begin with: their names may say anything.
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

// zstdBegins knows a frame, and those that readers skip, which may come first.
func zstdBegins(head []byte) bool {
	return bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}) || len(head) >= 4 && head[0]&0xf0 == 0x50 &&
		string(head[1:4]) == "\x2a\x4d\x18"
}

// packingOf is how a file is compressed, nil if it is not. One that is named as if it were is refused.
func packingOf(name string, head []byte) (*packing, error) {
	for i := range packings {
		if packings[i].begins(head) {
			return &packings[i], nil
		}
	}
	for i := range packings {
		if p := &packings[i]; strings.EqualFold(suffixOf(name, len(p.suffix)), p.suffix) {
			return nil,
				fmt.Errorf("%s is named as a file that %s has compressed, and its content does not begin as such: it is damaged, or has another format; rename it, or get it again", plain(name), p.name)
		}
	}
	return nil, nil
}

func suffixOf(name string, n int) string { return name[max(0, len(name)-n):] }

// Unpacked is the content of a file: what is compressed in it, where gzip or zstd has compressed it. end gives back
// what that takes. What is compressed twice is refused.
func Unpacked(name string, in *bufio.Reader) (content io.Reader, packed bool, end func(), err error) {
	head, err := in.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, false, nil, err
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
	head, err = inside.Peek(4) // its own error comes with reading
	for _, q := range packings {
		if err == nil && q.begins(head) {
			end()
			return nil, true, nil, fmt.Errorf("%s is compressed twice, by %s and %s inside: unpack it once", plain(name), p.name, q.name)
		}
	}
	return inside, true, end, nil
}

// unpack reads a compressed file whole, of at most most bytes of content.
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
		return nil, fmt.Errorf("%s, after %d bytes of its content: %w: the file is damaged or cut short", plain(name), n, err)
	}
	if n > most {
		return nil, fmt.Errorf("%s holds more than the %d bytes of memory that are left: use less text", plain(name), most)
	}
	return b.Bytes(), nil
}
