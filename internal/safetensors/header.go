package safetensors

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"

	"github.com/troupe-ml/troupe/internal/base/strictjson"
)

var (
	// ErrFormat: a file is not a safetensors file, or contradicts itself.
	ErrFormat = errors.New("not a valid safetensors file")
	// ErrTruncated: a file ends too early.
	ErrTruncated = errors.New("the safetensors file is truncated")
)

const (
	lengthBytes = 8 // the header's length, before the header
	metadataKey = "__metadata__"
)

// Info describes a tensor and its place.
type Info struct {
	Name  string
	DType string
	Shape []int // belongs to the header: not to be changed
	// Offset counts from the start of the data, after the header.
	Offset, Size int64
}

// Header is the checked header of a file.
type Header struct {
	metadata map[string]string
	tensors  []Info // by ascending offset
	byName   map[string]int
	data     int64 // start of the data in the file
}

// Names returns the tensors' names in the order of their data.
func (h *Header) Names() []string {
	names := make([]string, len(h.tensors))
	for i, t := range h.tensors {
		names[i] = t.Name
	}
	return names
}

// Info returns the tensor with the given name.
func (h *Header) Info(name string) (Info, bool) {
	i, ok := h.byName[name]
	if !ok {
		return Info{}, false
	}
	return h.tensors[i], true
}

// Metadata returns a copy of the file's free-form metadata.
func (h *Header) Metadata() map[string]string { return maps.Clone(h.metadata) }

// Parse reads and checks the header of a file of the given size. If r ends before that size the
// error is io.ErrUnexpectedEOF, which is not an error of the file.
func Parse(r io.ReaderAt, size int64) (*Header, error) {
	if size < lengthBytes {
		return nil, fmt.Errorf("%w: it has %d bytes, but the header's length alone takes %d", ErrTruncated, size, lengthBytes)
	}
	var prefix [lengthBytes]byte
	if err := readAt(r, prefix[:], 0); err != nil {
		return nil, err
	}
	length := binary.LittleEndian.Uint64(prefix[:])
	if length > HeaderBytesMax {
		return nil, fmt.Errorf("%w: the header has %d bytes; the limit is %d", ErrFormat, length, HeaderBytesMax)
	}
	data := lengthBytes + int64(length)
	if data > size {
		return nil, fmt.Errorf("%w: the header has %d bytes, but the file has only %d", ErrTruncated, length, size)
	}
	text := make([]byte, length)
	if err := readAt(r, text, lengthBytes); err != nil {
		return nil, err
	}
	h, err := decodeHeader(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	h.data = data
	if err := h.checkData(size - data); err != nil {
		return nil, err
	}
	return h, nil
}

func readAt(r io.ReaderAt, into []byte, offset int64) error {
	_, err := io.ReadFull(io.NewSectionReader(r, offset, int64(len(into))), into)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return fmt.Errorf("read %d bytes of the header at byte %d: %w", len(into), offset, err)
	}
	return nil
}

// checkData checks that the tensors cover the data to its last byte.
func (h *Header) checkData(have int64) error {
	var end int64
	for _, t := range h.tensors {
		end = t.Offset + t.Size
		if end > have {
			return fmt.Errorf("%w: tensor %s takes bytes %d to %d of the data, but there are only %d",
				ErrTruncated, strictjson.Quote(t.Name), t.Offset, end, have)
		}
	}
	if end < have {
		return fmt.Errorf("%w: there are %d bytes of data, but the tensors cover only %d", ErrFormat, have, end)
	}
	return nil
}

// decodeHeader decodes a header and checks everything that can be checked without the file. Its
// errors do not wrap ErrFormat.
func decodeHeader(text []byte) (*Header, error) {
	if len(text) == 0 || text[0] != '{' {
		return nil, errors.New("the header does not start with {")
	}
	dec, err := strictjson.NewDecoder(text)
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	h := &Header{byName: make(map[string]int)}
	err = strictjson.Object(dec, func(key string) error {
		if key == metadataKey {
			metadata, err := strictjson.StringMap(dec)
			if err != nil {
				return fmt.Errorf("%s: %w", metadataKey, err)
			}
			h.metadata = metadata
			return nil
		}
		if len(h.tensors) == TensorsMax {
			return fmt.Errorf("there are more than %d tensors", TensorsMax)
		}
		if len(key) > NameBytesMax {
			return fmt.Errorf("a tensor's name has %d bytes; the limit is %d", len(key), NameBytesMax)
		}
		info, err := decodeTensor(dec)
		if err != nil {
			return fmt.Errorf("tensor %s: %w", strictjson.Quote(key), err)
		}
		info.Name = key
		h.tensors = append(h.tensors, info)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := h.arrange(); err != nil {
		return nil, err
	}
	return h, nil
}

func decodeTensor(dec *json.Decoder) (Info, error) {
	var info Info
	var offsets []int64
	members := 0
	err := strictjson.Object(dec, func(key string) error {
		members++
		var err error
		switch key {
		case "dtype":
			info.DType, err = strictjson.String(dec)
		case "shape":
			var dims []int64
			dims, err = decodeInts(dec, RankMax, strconv.IntSize)
			info.Shape = make([]int, len(dims))
			for i, dim := range dims {
				info.Shape[i] = int(dim)
			}
		case "data_offsets":
			offsets, err = decodeInts(dec, 2, 64)
		default:
			return fmt.Errorf("unknown key %s", strictjson.Quote(key))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		return nil
	})
	if err != nil {
		return Info{}, err
	}
	if members != 3 {
		return Info{}, errors.New("dtype, shape or data_offsets is missing")
	}
	if len(offsets) != 2 || offsets[0] > offsets[1] {
		return Info{}, fmt.Errorf("data_offsets %v must be a start and an end", offsets)
	}
	info.Offset, info.Size = offsets[0], offsets[1]-offsets[0]
	want, err := byteSize(info.DType, info.Shape)
	if err != nil {
		return Info{}, err
	}
	if info.Size != want {
		return Info{}, fmt.Errorf("data_offsets %v hold %d bytes, but %s %v takes %d",
			offsets, info.Size, info.DType, info.Shape, want)
	}
	return info, nil
}

func decodeInts(dec *json.Decoder, countMax, bits int) ([]int64, error) {
	var ints []int64
	err := strictjson.Array(dec, func() error {
		if len(ints) == countMax {
			return fmt.Errorf("there are more than %d numbers", countMax)
		}
		n, err := strictjson.Uint(dec, bits)
		ints = append(ints, n)
		return err
	})
	return ints, err
}

// arrange sorts the tensors by offset, checks that each starts where the one before it ends, and
// indexes them.
func (h *Header) arrange() error {
	// Stable: tensors without bytes share an offset and keep the header's order.
	slices.SortStableFunc(h.tensors, func(a, b Info) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Size, b.Size))
	})
	var end int64
	for i, t := range h.tensors {
		if t.Offset != end {
			what := "leaves a hole"
			if t.Offset < end {
				what = "overlaps another tensor"
			}
			return fmt.Errorf("tensor %s starts at %d and %s: the data before it end at %d",
				strictjson.Quote(t.Name), t.Offset, what, end)
		}
		end += t.Size
		h.byName[t.Name] = i
	}
	return nil
}
