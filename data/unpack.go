package data

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// packed reports whether a text file is compressed, by its name.
func packed(name string) bool {
	return strings.HasSuffix(name, ".gz") || strings.HasSuffix(name, ".zst")
}

// unpack reads a compressed file whole, of at most most bytes of content.
func unpack(name string, most int64) (text []byte, err error) {
	if _, err := fileSize(name); err != nil {
		return nil, err
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, plainError(err)
	}
	defer func() { _ = f.Close() }() // nothing was written
	var in io.Reader
	if strings.HasSuffix(name, ".gz") {
		in, err = gzip.NewReader(f)
	} else {
		var d *zstd.Decoder
		if d, err = zstd.NewReader(f, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(1<<30)); err == nil {
			defer d.Close()
			in = d
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", plain(name), err)
	}
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
