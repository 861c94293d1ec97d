package gguf

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

const (
	lengthBytes  = 8        // of a string's length
	bufferBytes  = 64 << 10 // of the reader
	smallestName = lengthBytes + 4 + 4 + lengthBytes
)

// cursor reads a header. It knows how many bytes of the file are left, and reads no length without
// comparing it with them.
type cursor struct {
	r    *bufio.Reader
	at   int64 // bytes read
	size int64 // of the file
}

func newCursor(r io.ReaderAt, size int64) *cursor {
	return &cursor{r: bufio.NewReaderSize(io.NewSectionReader(r, 0, size), bufferBytes), size: size}
}

// left returns the bytes that may still be read.
func (c *cursor) left() int64 { return min(c.size, HeaderBytesMax) - c.at }

// tooLarge is the error about something that takes more bytes than are left.
func (c *cursor) tooLarge(what string) error {
	if c.size > HeaderBytesMax {
		return fmt.Errorf("%w: %s at byte %d: the header has more than %d bytes, the limit", ErrFormat, what, c.at, HeaderBytesMax)
	}
	return fmt.Errorf("%w: %s at byte %d, but the file has %d bytes", ErrTruncated, what, c.at, c.size)
}

// bytes reads n bytes, which must be there.
func (c *cursor) bytes(n int64) ([]byte, error) {
	if n > c.left() {
		return nil, c.tooLarge(fmt.Sprintf("%d bytes are expected", n))
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(c.r, b); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("read %d bytes of the header at byte %d: %w", n, c.at, err)
	}
	c.at += n
	return b, nil
}

// count reads a number of things that take at least so many bytes each.
func (c *cursor) count(least int64, what string) (int, error) {
	n, err := number[uint64](c)
	if err != nil {
		return 0, err
	}
	if n > uint64(max(0, c.left())/least) {
		return 0, c.tooLarge(fmt.Sprintf("%d %s of at least %d bytes each are expected", n, what, least))
	}
	return int(n), nil
}

// text reads a string.
func (c *cursor) text(most int64) (string, error) {
	n, err := number[uint64](c)
	if err != nil {
		return "", err
	}
	if n > uint64(most) {
		return "", fmt.Errorf("%w: a string of %d bytes at byte %d; the limit is %d", ErrFormat, n, c.at, most)
	}
	b, err := c.bytes(int64(n))
	return string(b), err
}

// bools reads bools, each a byte that is 0 or 1.
func (c *cursor) bools(n int) ([]bool, error) {
	b, err := c.bytes(int64(n))
	if err != nil {
		return nil, err
	}
	out := make([]bool, n)
	for i, v := range b {
		if v > 1 {
			return nil, fmt.Errorf("%w: a bool is %d: it must be 0 or 1", ErrFormat, v)
		}
		out[i] = v == 1
	}
	return out, nil
}

// numbers reads n numbers; count has checked n.
func numbers[T any](c *cursor, n int) ([]T, error) {
	var one T
	b, err := c.bytes(int64(n) * int64(binary.Size(one)))
	if err != nil {
		return nil, err
	}
	out := make([]T, n)
	_, err = binary.Decode(b, binary.LittleEndian, out)
	return out, err
}

func number[T any](c *cursor) (T, error) {
	var one T
	all, err := numbers[T](c, 1)
	if err == nil {
		one = all[0]
	}
	return one, err
}
