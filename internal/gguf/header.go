package gguf

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/troupe-ml/troupe/internal/base/strictjson"
)

var (
	// ErrFormat: a file is not a GGUF file, or contradicts itself.
	ErrFormat = errors.New("not a valid GGUF file")
	// ErrTruncated: a file ends too early.
	ErrTruncated = errors.New("the GGUF file is truncated")
)

const (
	magic            = "GGUF"
	version          = 3
	oldestVersion    = 2 // version 1 had counts of 32 bits
	alignmentKey     = "general.alignment"
	defaultAlignment = 32
)

// Info describes a tensor and its place.
type Info struct {
	Name string
	Type Type
	// Shape is row by row, as in Hugging Face's files: the last dimension is contiguous. GGUF stores it
	// in the other order. It belongs to the header and must not be changed.
	Shape []int
	// Offset counts from the start of the data, after the header.
	Offset, Size int64
}

// Header is the checked header of a file.
type Header struct {
	entries []Entry
	tensors []Info
	byKey   map[string]int
	byName  map[string]int
	data    int64 // start of the data in the file
}

// Entries returns the entries in the order of the file. They must not be changed.
func (h *Header) Entries() []Entry { return h.entries }

// Tensors returns the tensors in the order of the header. They must not be changed.
func (h *Header) Tensors() []Info { return h.tensors }

// Value returns the value of a key.
func (h *Header) Value(key string) (any, bool) {
	i, ok := h.byKey[key]
	if !ok {
		return nil, false
	}
	return h.entries[i].Value, true
}

// Info returns the tensor with the given name.
func (h *Header) Info(name string) (Info, bool) {
	i, ok := h.byName[name]
	if !ok {
		return Info{}, false
	}
	return h.tensors[i], true
}

// Parse reads and checks the header of a file of the given size. If r ends before that size the error
// is io.ErrUnexpectedEOF, which is not an error of the file.
func Parse(r io.ReaderAt, size int64) (*Header, error) {
	c := newCursor(r, size)
	h := &Header{byKey: make(map[string]int), byName: make(map[string]int)}
	entries, tensors, err := c.counts()
	if err != nil {
		return nil, wrapped(err)
	}
	for i := range entries {
		if err := h.readEntry(c); err != nil {
			return nil, wrapped(fmt.Errorf("entry %d of %d: %w", i+1, entries, err))
		}
	}
	for i := range tensors {
		if err := h.readTensor(c); err != nil {
			return nil, wrapped(fmt.Errorf("tensor %d of %d: %w", i+1, tensors, err))
		}
	}
	alignment, err := h.alignment()
	if err != nil {
		return nil, wrapped(err)
	}
	h.data = aligned(c.at, alignment)
	return h, wrapped(h.checkData(size-h.data, alignment))
}

// wrapped makes every error about the content an ErrFormat.
func wrapped(err error) error {
	if err == nil || errors.Is(err, ErrFormat) || errors.Is(err, ErrTruncated) || errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrFormat, err)
}

// counts reads the start of the file.
func (c *cursor) counts() (entries, tensors int, err error) {
	start, err := c.bytes(int64(len(magic)))
	if err != nil {
		return 0, 0, err
	}
	if string(start) != magic {
		return 0, 0, fmt.Errorf("the file starts with %q, not with %q", start, magic)
	}
	v, err := number[uint32](c)
	switch {
	case err != nil:
		return 0, 0, err
	case v < 1<<16 && (v < oldestVersion || v > version):
		return 0, 0, fmt.Errorf("its version is %d; Troupe reads versions %d and %d", v, oldestVersion, version)
	case v >= 1<<16:
		return 0, 0, fmt.Errorf("its version is %#x: the file is big-endian or damaged; Troupe reads little-endian files", v)
	}
	if tensors, err = c.count(smallestName, "tensors"); err != nil {
		return 0, 0, err
	}
	if entries, err = c.count(lengthBytes+4+1, "entries"); err != nil {
		return 0, 0, err
	}
	if entries > EntriesMax || tensors > TensorsMax {
		return 0, 0, fmt.Errorf("it has %d entries and %d tensors; the limits are %d and %d", entries, tensors, EntriesMax, TensorsMax)
	}
	return entries, tensors, nil
}

func (h *Header) readEntry(c *cursor) error {
	key, err := c.text(KeyBytesMax)
	if err != nil {
		return fmt.Errorf("key: %w", err)
	}
	if _, twice := h.byKey[key]; twice || key == "" {
		return fmt.Errorf("the key %s is empty or occurs twice", strictjson.Quote(key))
	}
	k, err := number[uint32](c)
	if err != nil {
		return err
	}
	v, err := c.value(kind(k))
	if err != nil {
		return fmt.Errorf("%s: %w", strictjson.Quote(key), err)
	}
	h.byKey[key] = len(h.entries)
	h.entries = append(h.entries, Entry{key, v})
	return nil
}

func (h *Header) readTensor(c *cursor) error {
	name, err := c.text(NameBytesMax)
	if err != nil {
		return fmt.Errorf("name: %w", err)
	}
	if _, twice := h.byName[name]; twice || name == "" {
		return fmt.Errorf("the name %s is empty or occurs twice", strictjson.Quote(name))
	}
	info, err := c.tensor()
	if err != nil {
		return fmt.Errorf("%s: %w", strictjson.Quote(name), err)
	}
	info.Name = name
	h.byName[name] = len(h.tensors)
	h.tensors = append(h.tensors, info)
	return nil
}

// tensor reads what follows the name.
func (c *cursor) tensor() (info Info, err error) {
	rank, err := number[uint32](c)
	if err != nil {
		return info, err
	}
	if rank < 1 || rank > RankMax {
		return info, fmt.Errorf("it has %d dimensions; the limits are 1 and %d", rank, RankMax)
	}
	dims, err := numbers[uint64](c, int(rank))
	if err != nil {
		return info, err
	}
	for _, d := range slices.Backward(dims) {
		if d > math.MaxInt64 || int64(int(d)) != int64(d) {
			return info, fmt.Errorf("a dimension is %d, more than this machine can address", d)
		}
		info.Shape = append(info.Shape, int(d))
	}
	t, err := number[uint32](c)
	if err != nil {
		return info, err
	}
	offset, err := number[uint64](c)
	if err != nil {
		return info, err
	}
	if offset > math.MaxInt64 {
		return info, fmt.Errorf("its offset is %d, more than a file can have", offset)
	}
	info.Type, info.Offset = Type(t), int64(offset)
	info.Size, err = byteSize(info.Type, info.Shape)
	return info, err
}

// alignment returns the alignment of the data.
func (h *Header) alignment() (int64, error) {
	v, ok := h.Value(alignmentKey)
	if !ok {
		return defaultAlignment, nil
	}
	a, ok := v.(uint32)
	if !ok {
		return 0, fmt.Errorf("%s is a %T, but must be a uint32", alignmentKey, v)
	}
	if a == 0 || a&(a-1) != 0 || a > AlignmentMax {
		return 0, fmt.Errorf("%s is %d: it must be a power of two up to %d", alignmentKey, a, AlignmentMax)
	}
	return int64(a), nil
}

// aligned rounds up.
func aligned(n, alignment int64) int64 { return (n + alignment - 1) / alignment * alignment }

// checkData checks that the tensors are in the data, aligned and apart.
func (h *Header) checkData(have, alignment int64) error {
	order := slices.Clone(h.tensors)
	slices.SortStableFunc(order, func(a, b Info) int { return cmp.Compare(a.Offset, b.Offset) })
	var end int64
	for _, t := range order {
		switch {
		case t.Offset%alignment != 0:
			return fmt.Errorf("tensor %s starts at byte %d of the data, which is not a multiple of the alignment %d",
				strictjson.Quote(t.Name), t.Offset, alignment)
		case t.Offset < end:
			return fmt.Errorf("tensor %s starts at byte %d of the data and overlaps another tensor, which ends at %d",
				strictjson.Quote(t.Name), t.Offset, end)
		case t.Size > math.MaxInt64-t.Offset || t.Offset+t.Size > have:
			return fmt.Errorf("%w: tensor %s takes %d bytes from byte %d of the data, but there are only %d", ErrTruncated,
				strictjson.Quote(t.Name), t.Size, t.Offset, max(0, have))
		}
		end = t.Offset + t.Size
	}
	return nil
}

// appendText appends a string.
func appendText(dst []byte, text string) []byte {
	return append(binary.LittleEndian.AppendUint64(dst, uint64(len(text))), text...)
}
