package gguf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"unicode/utf8"
)

// Tensor is a tensor to write. Stream writes its bytes in each call: exactly the size that Type and
// Shape require.
type Tensor struct {
	Name   string
	Type   Type
	Shape  []int // row by row
	Stream func(io.Writer) error
}

// Prepared is a file whose header is complete and whose data is still to be written: its size is known
// before anything is written.
type Prepared struct {
	header  []byte // with the padding before the data
	tensors []Tensor
	sizes   []int64
	size    int64
}

// Prepare checks entries and tensors and lays out the file, with the tensors in the given order.
func Prepare(entries []Entry, tensors []Tensor) (*Prepared, error) {
	p := &Prepared{tensors: slices.Clone(tensors)}
	alignment := int64(defaultAlignment)
	head := append([]byte(magic), 0, 0, 0, 0)
	binary.LittleEndian.PutUint32(head[len(magic):], version)
	head = binary.LittleEndian.AppendUint64(head, uint64(len(tensors)))
	head = binary.LittleEndian.AppendUint64(head, uint64(len(entries)))
	var err error
	for _, e := range entries {
		if head, err = appendEntry(head, e); err != nil {
			return nil, fmt.Errorf("%s: %w", e.Key, err)
		}
		if a, ok := e.Value.(uint32); ok && e.Key == alignmentKey {
			alignment = max(1, int64(a)) // a wrong one is refused below
		}
	}
	var end int64
	for _, t := range tensors {
		size, err := byteSize(t.Type, t.Shape)
		if err == nil && size > math.MaxInt64/2-end {
			err = errors.New("the data exceed 2^62 bytes")
		}
		if err != nil {
			return nil, fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		head = appendText(head, t.Name)
		head = binary.LittleEndian.AppendUint32(head, uint32(len(t.Shape)))
		for _, d := range slices.Backward(t.Shape) {
			head = binary.LittleEndian.AppendUint64(head, uint64(d))
		}
		head = binary.LittleEndian.AppendUint32(head, uint32(t.Type))
		head = binary.LittleEndian.AppendUint64(head, uint64(end))
		p.sizes = append(p.sizes, aligned(size, alignment))
		end += aligned(size, alignment)
	}
	p.header = append(head, make([]byte, aligned(int64(len(head)), alignment)-int64(len(head)))...)
	p.size = int64(len(p.header)) + end
	// What the reader would refuse must not be written.
	if _, err := Parse(bytes.NewReader(p.header), p.size); err != nil {
		return nil, fmt.Errorf("cannot be written as GGUF: %w", err)
	}
	return p, nil
}

// appendEntry appends a key with its value.
func appendEntry(dst []byte, e Entry) ([]byte, error) {
	if !utf8.ValidString(e.Key) {
		return nil, errors.New("the key is not valid UTF-8")
	}
	k, element, err := kindOf(e.Value)
	if err != nil {
		return nil, err
	}
	dst = binary.LittleEndian.AppendUint32(appendText(dst, e.Key), uint32(k))
	switch v := e.Value.(type) {
	case string:
		return appendText(dst, v), nil
	case []string:
		dst = appendArray(dst, element, len(v))
		for _, text := range v {
			dst = appendText(dst, text)
		}
		return dst, nil
	}
	if k == kindArray {
		dst = appendArray(dst, element, binary.Size(e.Value)/int(element.bytes()))
	}
	return binary.Append(dst, binary.LittleEndian, e.Value)
}

func appendArray(dst []byte, element kind, n int) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(dst, uint32(element)), uint64(n))
}

// Size returns the size of the whole file in bytes.
func (p *Prepared) Size() int64 { return p.size }

// WriteTo writes the file to w.
func (p *Prepared) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(p.header)
	written := int64(n)
	if err != nil {
		return written, err
	}
	for i, t := range p.tensors {
		size, _ := byteSize(t.Type, t.Shape) // checked by Prepare
		exact := &exactWriter{w: w, left: size}
		err := t.Stream(exact)
		written += size - exact.left
		if err == nil && exact.left != 0 {
			err = fmt.Errorf("its stream ended after %d of %d bytes", size-exact.left, size)
		}
		if err != nil {
			return written, fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		n, err := w.Write(make([]byte, p.sizes[i]-size))
		written += int64(n)
		if err != nil {
			return written, err
		}
	}
	return written, nil
}

// exactWriter refuses more bytes than announced: they would shift every later tensor.
type exactWriter struct {
	w    io.Writer
	left int64
}

func (e *exactWriter) Write(p []byte) (int, error) {
	if int64(len(p)) > e.left {
		return 0, fmt.Errorf("its stream continues for at least %d bytes after the tensor's end", int64(len(p))-e.left)
	}
	n, err := e.w.Write(p)
	e.left -= int64(n)
	return n, err
}
