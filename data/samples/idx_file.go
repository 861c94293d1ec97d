package samples

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/troupe-ml/troupe/tensorops"
)

// idxTypes are the element types by code: their size in bytes, whether they are integers, and how
// to read one.
var idxTypes = map[byte]struct {
	bytes   int
	integer bool
	read    func(b []byte) float64
}{
	0x08: {1, true, func(b []byte) float64 { return float64(b[0]) }},
	0x09: {1, true, func(b []byte) float64 { return float64(int8(b[0])) }},
	0x0b: {2, true, func(b []byte) float64 { return float64(int16(binary.BigEndian.Uint16(b))) }},
	0x0c: {4, true, func(b []byte) float64 { return float64(int32(binary.BigEndian.Uint32(b))) }},
	0x0d: {4, false, func(b []byte) float64 { return float64(math.Float32frombits(binary.BigEndian.Uint32(b))) }},
	0x0e: {8, false, func(b []byte) float64 { return math.Float64frombits(binary.BigEndian.Uint64(b)) }},
}

const unsignedByte = 0x08

// idxFile is an IDX file: a tensor whose first dimension is the samples.
//
// The file has two zero bytes, the code of the element type, the number of dimensions, each
// dimension in four bytes, and the elements. All numbers are big-endian.
type idxFile struct {
	name   string
	code   byte
	n      int   // samples
	shape  []int // shape of one sample
	header int   // size in bytes
	raw    []byte
}

func readIDX(name string, m *memory) (*idxFile, error) {
	f, err := openFile(name)
	if err != nil {
		return nil, err
	}
	defer f.close()
	x := &idxFile{name: name}
	sampleBytes, err := x.readHeader(f)
	if err != nil {
		return nil, err
	}
	need := int64(x.n) * sampleBytes
	if has := f.bytes - int64(x.header); f.bytes >= 0 && has != need {
		return nil, x.sized(has, need, sampleBytes)
	}
	if err := m.take(need); err != nil {
		return nil, x.fail(4, err)
	}
	// A compressed file states its length, but it must be verified.
	var raw bytes.Buffer
	if f.bytes >= 0 {
		raw.Grow(int(need))
	}
	if got, err := io.CopyN(&raw, f, need); errors.Is(err, io.EOF) {
		return nil, x.sized(got, need, sampleBytes)
	} else if err != nil {
		return nil, err
	}
	if rest, err := io.CopyN(io.Discard, f, 1); rest > 0 {
		return nil, x.sized(need+1, need, sampleBytes)
	} else if !errors.Is(err, io.EOF) {
		return nil, err
	}
	x.raw = raw.Bytes()
	return x, nil
}

// readHeader returns the size of one sample in bytes.
func (x *idxFile) readHeader(f *file) (sampleBytes int64, err error) {
	head := make([]byte, 4)
	if err := x.headerBytes(f, head); err != nil {
		return 0, err
	}
	x.header = len(head)
	kind, known := idxTypes[head[2]]
	rank := int(head[3])
	switch {
	case head[0] != 0 || head[1] != 0 || !known:
		return 0, x.fail(0,
			fmt.Errorf("%w: the file starts with % x, but an IDX file starts with 00 00, a type of 08 09 0b 0c 0d 0e, and the number of dimensions: check the format", ErrFormat, head))
	case rank < 1 || rank > limitRank+1:
		return 0, x.fail(3, fmt.Errorf("%w: the file has %d dimensions: want from 1 to %d, the first of which is the samples", ErrFormat, rank,
			limitRank+1))
	}
	dims := make([]byte, 4*rank)
	if err := x.headerBytes(f, dims); err != nil {
		return 0, err
	}
	x.code, x.header = head[2], x.header+len(dims)
	sampleBytes = int64(kind.bytes)
	for d := range rank {
		n := binary.BigEndian.Uint32(dims[4*d:])
		if n < 1 || n > tensorops.MaxDim {
			return 0, x.fail(int64(4+4*d), fmt.Errorf("%w: dimension %d is %d: it must be from 1 to %d", ErrFormat, d, n, tensorops.MaxDim))
		}
		if d == 0 {
			x.n = int(n)
			continue
		}
		if x.shape = append(x.shape, int(n)); sampleBytes > math.MaxInt64/int64(n)/int64(x.n) {
			return 0, x.fail(int64(4+4*d), fmt.Errorf("%w: samples whose shape starts with %v have too many elements", ErrFormat, x.shape))
		}
		sampleBytes *= int64(n)
	}
	return sampleBytes, nil
}

func (x *idxFile) headerBytes(f *file, into []byte) error {
	n, err := io.ReadFull(f, into)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return x.fail(int64(x.header+n), fmt.Errorf("%w: the file ends in its header: it is truncated, or has another format", ErrFormat))
	}
	return err
}

// sized returns the error for a file with too few or too many bytes after its header.
func (x *idxFile) sized(has, need, sampleBytes int64) error {
	if has > need {
		return x.fail(int64(x.header)+need,
			fmt.Errorf("%w: the file continues after its %d samples of %d bytes: the first dimension is wrong, or data was appended; get the file again", ErrFormat, x.n, sampleBytes))
	}
	return x.fail(int64(x.header)+has, fmt.Errorf("%w: the file ends after %d of %d samples of %d bytes each: it is truncated; get it again",
		ErrFormat, has/sampleBytes, x.n, sampleBytes))
}

func (x *idxFile) fail(at int64, err error) error {
	return &PlaceError{File: x.name, Byte: at, Err: err}
}

// size returns the number of elements of one sample.
func (x *idxFile) size() int {
	size := 1
	for _, n := range x.shape {
		size *= n
	}
	return size
}

// element returns one of the elements of all samples, one sample after the other.
func (x *idxFile) element(i int) float64 {
	kind := idxTypes[x.code]
	return kind.read(x.raw[i*kind.bytes:])
}

// place returns the position of an element's first byte.
func (x *idxFile) place(i int) int64 {
	return int64(x.header) + int64(i)*int64(idxTypes[x.code].bytes)
}
