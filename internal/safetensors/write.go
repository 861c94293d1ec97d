package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"
	"unicode/utf8"
)

// Tensor is a tensor to write. Its bytes are Data or, if Stream is set, what Stream writes in each
// call: exactly the size that DType and Shape require. Another process writes the bytes of an Absent
// tensor, to the place given by Prepared.Places.
type Tensor struct {
	Name   string
	DType  string // "F32", "F16", "BF16", "F64", "I32", "I64", "U8", …
	Shape  []int  // empty for a scalar
	Data   []byte
	Stream func(io.Writer) error
	Absent bool
}

// Size returns the number of bytes for the tensor's dtype and shape.
func (t Tensor) Size() (int64, error) {
	size, err := byteSize(t.DType, t.Shape)
	if err != nil {
		return 0, fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	return size, nil
}

// Write writes a file of the given tensors to w.
func Write(w io.Writer, metadata map[string]string, tensors []Tensor) error {
	p, err := Prepare(metadata, tensors)
	if err != nil {
		return err
	}
	_, err = p.WriteTo(w)
	return err
}

// Prepared is a file whose header is complete and whose data is still to be written: its size is
// known before anything is written.
type Prepared struct {
	header  []byte // the length and the padded header
	tensors []Tensor
	size    int64
}

// Prepare checks the tensors and lays out the file. The data are in the given order, except that
// wider elements come first: so each tensor is aligned to its elements, on which readers that map
// the file rely.
func Prepare(metadata map[string]string, tensors []Tensor) (*Prepared, error) {
	tensors = slices.Clone(tensors)
	slices.SortStableFunc(tensors, func(a, b Tensor) int {
		return cmp.Compare(elementBytes[b.DType], elementBytes[a.DType])
	})
	header, dataBytes, err := encodeHeader(metadata, tensors)
	if err != nil {
		return nil, err
	}
	// What the reader would refuse must not be written.
	if _, err := decodeHeader(header); err != nil {
		return nil, fmt.Errorf("cannot be written as safetensors: %w", err)
	}
	if len(header) > HeaderBytesMax {
		return nil, fmt.Errorf("the header has %d bytes; the limit is %d", len(header), HeaderBytesMax)
	}
	prefixed := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	prefixed = append(prefixed, header...)
	if dataBytes > math.MaxInt64-int64(len(prefixed)) {
		return nil, fmt.Errorf("the data has %d bytes: a file must have fewer than 2^63", dataBytes)
	}
	return &Prepared{header: prefixed, tensors: tensors, size: int64(len(prefixed)) + dataBytes}, nil
}

// Size returns the size of the whole file in bytes.
func (p *Prepared) Size() int64 { return p.size }

// Header returns the start of the file, before the first tensor.
func (p *Prepared) Header() []byte { return p.header }

// Places returns the tensors in the order of the file, each with the place of its first byte.
func (p *Prepared) Places() iter.Seq2[int64, Tensor] {
	return func(yield func(int64, Tensor) bool) {
		offset := int64(len(p.header))
		for _, t := range p.tensors {
			if !yield(offset, t) {
				return
			}
			size, _ := t.Size() // checked by Prepare
			offset += size
		}
	}
}

// WriteTo writes the file to w.
func (p *Prepared) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(p.header)
	written := int64(n)
	if err != nil {
		return written, err
	}
	for _, t := range p.tensors {
		n, err := t.WriteTo(w)
		written += n
		if err != nil {
			return written, fmt.Errorf("tensor %q: %w", t.Name, err)
		}
	}
	return written, nil
}

// encodeHeader returns the padded header and the size of the data after it.
func encodeHeader(metadata map[string]string, tensors []Tensor) ([]byte, int64, error) {
	var text bytes.Buffer
	separator := "{"
	member := func(key string, value any) error {
		if !utf8.ValidString(key) {
			return fmt.Errorf("the name %q is not valid UTF-8", key)
		}
		k, err := json.Marshal(key)
		if err != nil {
			return err
		}
		v, err := json.Marshal(value)
		if err != nil {
			return err
		}
		text.WriteString(separator)
		text.Write(k)
		text.WriteByte(':')
		text.Write(v)
		separator = ","
		return nil
	}
	if len(metadata) > 0 {
		for key, value := range metadata {
			if !utf8.ValidString(key) || !utf8.ValidString(value) {
				return nil, 0, fmt.Errorf("the metadata %q: %q are not valid UTF-8", key, value)
			}
		}
		if err := member(metadataKey, metadata); err != nil {
			return nil, 0, err
		}
	}
	var end int64
	for _, t := range tensors {
		size, err := t.Size()
		if err != nil {
			return nil, 0, err
		}
		if t.Stream == nil && !t.Absent && int64(len(t.Data)) != size {
			return nil, 0, fmt.Errorf("tensor %q: it has %d bytes of data, but %s %v takes %d", t.Name, len(t.Data), t.DType, t.Shape, size)
		}
		if size > math.MaxInt64-end {
			return nil, 0, fmt.Errorf("tensor %q: the data exceed 2^63 bytes", t.Name)
		}
		err = member(t.Name, struct {
			DType   string   `json:"dtype"`
			Shape   []int    `json:"shape"`
			Offsets [2]int64 `json:"data_offsets"`
		}{t.DType, append([]int{}, t.Shape...), [2]int64{end, end + size}}) // a scalar's shape is [], not null
		if err != nil {
			return nil, 0, err
		}
		end += size
	}
	if separator == "{" {
		text.WriteByte('{')
	}
	text.WriteByte('}')
	for text.Len()%8 != 0 {
		text.WriteByte(' ')
	}
	return text.Bytes(), end, nil
}

// WriteTo writes the tensor's bytes to w.
func (t Tensor) WriteTo(w io.Writer) (int64, error) {
	if t.Absent {
		return 0, errors.New("its bytes are absent")
	}
	if t.Stream == nil {
		n, err := w.Write(t.Data)
		return int64(n), err
	}
	size, err := t.Size()
	if err != nil {
		return 0, err
	}
	exact := &exactWriter{w: w, left: size}
	if err := t.Stream(exact); err != nil {
		return size - exact.left, err
	}
	if exact.left != 0 {
		return size - exact.left, fmt.Errorf("its stream ended after %d of %d bytes", size-exact.left, size)
	}
	return size, nil
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
