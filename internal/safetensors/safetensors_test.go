package safetensors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// file builds a file from a header's text, unpadded, and data.
func file(header string, dataBytes int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	b = append(b, header...)
	return append(b, make([]byte, dataBytes)...)
}

// entry is one member of a header.
func entry(name, dtype, shape string, begin, end int) string {
	return fmt.Sprintf(`"%s":{"dtype":"%s","shape":[%s],"data_offsets":[%d,%d]}`, name, dtype, shape, begin, end)
}

func TestParse(t *testing.T) {
	many := func(n int, s string) string { return strings.TrimSuffix(strings.Repeat(s+",", n), ",") }
	for _, c := range []struct {
		name    string
		content []byte
		want    []string // names
		wantIs  error
		wantErr string
	}{
		{name: "no tensors", content: file(`{}`, 0)},
		{name: "one", content: file(`{`+entry("a", "F32", "2,3", 0, 24)+`}`, 24), want: []string{"a"}},
		{name: "padded", content: file(`{`+entry("a", "U8", "1", 0, 1)+`}     `, 1), want: []string{"a"}},
		{name: "scalar", content: file(`{`+entry("a", "F64", "", 0, 8)+`}`, 8), want: []string{"a"}},
		{name: "header in another order", content: file(`{`+entry("b", "U8", "3", 1, 4)+`,`+entry("a", "U8", "1", 0, 1)+`}`, 4),
			want: []string{"a", "b"}},
		{name: "empty ones between", content: file(`{`+entry("a", "U8", "2", 0, 2)+`,`+entry("b", "F32", "0,7", 2, 2)+`,`+
			entry("c", "F32", "0", 0, 0)+`}`, 2), want: []string{"c", "a", "b"}},

		{name: "empty file", content: nil, wantIs: ErrTruncated, wantErr: "0 bytes"},
		{name: "cut in the length", content: make([]byte, 7), wantIs: ErrTruncated, wantErr: "7 bytes"},
		{name: "cut in the header", content: file(`{`+entry("a", "U8", "1", 0, 1)+`}`, 1)[:20], wantIs: ErrTruncated,
			wantErr: "but the file has only 20"},
		{name: "cut in the data", content: file(`{`+entry("a", "F32", "2", 0, 8)+`}`, 7), wantIs: ErrTruncated,
			wantErr: `tensor "a" takes bytes 0 to 8 of the data, but there are only 7`},
		{name: "more data", content: file(`{`+entry("a", "F32", "2", 0, 8)+`}`, 9), wantIs: ErrFormat,
			wantErr: "there are 9 bytes of data, but the tensors cover only 8"},
		{name: "data of none", content: file(`{}`, 1), wantIs: ErrFormat, wantErr: "1 bytes of data"},
		{name: "huge header", content: binary.LittleEndian.AppendUint64(nil, math.MaxUint64), wantIs: ErrFormat,
			wantErr: "the limit is 100000000"},
		{name: "header above the limit", content: binary.LittleEndian.AppendUint64(nil, HeaderBytesMax+1), wantIs: ErrFormat,
			wantErr: "100000001"},

		{name: "empty header", content: file(``, 0), wantIs: ErrFormat, wantErr: "does not start with {"},
		{name: "leading space", content: file(` {}`, 0), wantIs: ErrFormat, wantErr: "does not start with {"},
		{name: "not JSON", content: file(`{"a"`, 0), wantIs: ErrFormat, wantErr: "not valid JSON"},
		{name: "two values", content: file(`{}{}`, 0), wantIs: ErrFormat, wantErr: "not valid JSON"},
		{name: "not UTF-8", content: file("{\"\xff\":1}", 0), wantIs: ErrFormat, wantErr: "UTF-8"},
		{name: "a name twice", content: file(`{`+entry("a", "U8", "1", 0, 1)+`,`+entry("a", "U8", "1", 1, 2)+`}`, 2), wantIs: ErrFormat,
			wantErr: `the key "a" appears twice`},
		{name: "a long name", content: file(`{`+entry(strings.Repeat("n", NameBytesMax+1), "U8", "1", 0, 1)+`}`, 1), wantIs: ErrFormat,
			wantErr: "name has 4097 bytes"},
		{name: "unknown dtype", content: file(`{`+entry("a", "F31", "1", 0, 4)+`}`, 4), wantIs: ErrFormat,
			wantErr: `tensor "a": unknown dtype "F31"`},
		{name: "negative dimension", content: file(`{`+entry("a", "U8", "-1", 0, 1)+`}`, 1), wantIs: ErrFormat,
			wantErr: `tensor "a": shape: "-1" is not an integer`},
		{name: "fractional dimension", content: file(`{`+entry("a", "U8", "1.0", 0, 1)+`}`, 1), wantIs: ErrFormat, wantErr: `"1.0"`},
		{name: "dimension past 64 bits", content: file(`{`+entry("a", "U8", "9223372036854775808", 0, 1)+`}`, 1), wantIs: ErrFormat,
			wantErr: `"9223372036854775808"`},
		{name: "product overflows to its size", content: file(`{`+entry("a", "U8", "4294967296,4294967296", 0, 0)+`}`, 0), wantIs: ErrFormat,
			wantErr: "more than 2^63 bytes"},
		{name: "product overflows before a zero", content: file(`{`+entry("a", "U8", "4294967296,4294967296,0", 0, 0)+`}`, 0), wantIs: ErrFormat,
			wantErr: "more than 2^63 bytes"},
		{name: "element size overflows", content: file(`{`+entry("a", "F64", "2305843009213693952", 0, 0)+`}`, 0), wantIs: ErrFormat,
			wantErr: "more than 2^63 bytes"},
		{name: "rank", content: file(`{`+entry("a", "U8", many(RankMax+1, "1"), 0, 1)+`}`, 1), wantIs: ErrFormat,
			wantErr: "there are more than 64 numbers"},
		{name: "size and shape", content: file(`{`+entry("a", "F32", "2,3", 0, 20)+`}`, 20), wantIs: ErrFormat,
			wantErr: "data_offsets [0 20] hold 20 bytes, but F32 [2 3] takes 24"},
		{name: "offsets backwards", content: file(`{`+entry("a", "U8", "1", 1, 0)+`}`, 1), wantIs: ErrFormat,
			wantErr: "[1 0] must be a start and an end"},
		{name: "negative offset", content: file(`{`+entry("a", "U8", "1", -1, 0)+`}`, 1), wantIs: ErrFormat, wantErr: `data_offsets: "-1"`},
		{name: "one offset", content: file(`{"a":{"dtype":"U8","shape":[0],"data_offsets":[0]}}`, 0), wantIs: ErrFormat,
			wantErr: "[0] must be a start and an end"},
		{name: "three offsets", content: file(`{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0,0]}}`, 0), wantIs: ErrFormat,
			wantErr: "there are more than 2 numbers"},
		{name: "hole", content: file(`{`+entry("a", "U8", "1", 0, 1)+`,`+entry("b", "U8", "1", 2, 3)+`}`, 3), wantIs: ErrFormat,
			wantErr: `tensor "b" starts at 2 and leaves a hole: the data before it end at 1`},
		{name: "hole at the beginning", content: file(`{`+entry("a", "U8", "1", 1, 2)+`}`, 2), wantIs: ErrFormat,
			wantErr: `starts at 1 and leaves a hole`},
		{name: "overlap", content: file(`{`+entry("a", "U8", "2", 0, 2)+`,`+entry("b", "U8", "2", 1, 3)+`}`, 3), wantIs: ErrFormat,
			wantErr: `tensor "b" starts at 1 and overlaps`},
		{name: "the same bytes", content: file(`{`+entry("a", "U8", "2", 0, 2)+`,`+entry("b", "U8", "2", 0, 2)+`}`, 2), wantIs: ErrFormat,
			wantErr: `tensor "b" starts at 0 and overlaps`},
		{name: "no dtype", content: file(`{"a":{"shape":[0],"data_offsets":[0,0]}}`, 0), wantIs: ErrFormat,
			wantErr: "dtype, shape or data_offsets is missing"},
		{name: "key in capitals", content: file(`{"a":{"DType":"U8","shape":[0],"data_offsets":[0,0]}}`, 0), wantIs: ErrFormat,
			wantErr: `unknown key "DType"`},
		{name: "dtype twice", content: file(`{"a":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}}`, 0), wantIs: ErrFormat,
			wantErr: `"dtype" appears twice`},
		{name: "shape null", content: file(`{"a":{"dtype":"U8","shape":null,"data_offsets":[0,1]}}`, 1), wantIs: ErrFormat,
			wantErr: "shape: expected an array, found null"},
		{name: "tensor is no object", content: file(`{"a":[]}`, 0), wantIs: ErrFormat, wantErr: `tensor "a": expected an object`},
		{name: "metadata number", content: file(`{"__metadata__":{"step":1}}`, 0), wantIs: ErrFormat,
			wantErr: `__metadata__: "step": expected a string`},
		{name: "metadata twice", content: file(`{"__metadata__":{},"__metadata__":{}}`, 0), wantIs: ErrFormat, wantErr: "appears twice"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, err := Parse(bytes.NewReader(c.content), int64(len(c.content)))
			if c.wantIs != nil {
				if !errors.Is(err, c.wantIs) || !strings.Contains(err.Error(), c.wantErr) {
					t.Fatalf("error %v, want %q in it", err, c.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := h.Names(); !slices.Equal(got, c.want) {
				t.Fatalf("names %q, want %q", got, c.want)
			}
		})
	}
}

// A size that promises more than the reader has must not pass; but a read that is
// short does not prove that the file is.
func TestParseShortReader(t *testing.T) {
	content := file(`{}`, 0)
	for n := range content {
		if _, err := Parse(bytes.NewReader(content[:n]), int64(len(content))); !errors.Is(err, io.ErrUnexpectedEOF) ||
			errors.Is(err, ErrTruncated) || errors.Is(err, ErrFormat) {
			t.Errorf("%d of %d bytes: %v", n, len(content), err)
		}
	}
}

// reference.safetensors was written by the format's reference library.
func TestReferenceFile(t *testing.T) {
	f, err := Open("testdata/reference.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer closeFile(t, f)
	if got := f.Metadata()["note"]; got != "written by the reference library" {
		t.Errorf("note %q", got)
	}
	for name, want := range map[string][]float32{
		"scalar": {1.5},
		"matrix": {0, 1, 2, 3, 4, 5},
		"half":   {0, -1, 65504, 0x1p-24, float32(math.Inf(1))},
		"brain":  {1, -2.5},
		"empty":  {},
	} {
		info, ok := f.Info(name)
		if !ok {
			t.Errorf("no tensor %q", name)
			continue
		}
		got, err := Float32s(info.DType, bytesOf(t, f, name))
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v, want %v", name, got, err, want)
		}
	}
	if got := bytesOf(t, f, "bytes"); !bytes.Equal(got, []byte{7, 8, 9}) {
		t.Errorf("bytes: %v", got)
	}
	if got := bytesOf(t, f, "ids"); int64(binary.LittleEndian.Uint64(got[8:])) != -2 {
		t.Errorf("ids: %v", got)
	}
}

func bytesOf(t testing.TB, f *File, name string) []byte {
	t.Helper()
	data, err := f.Bytes(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func closeFile(t testing.TB, f *File) {
	t.Helper()
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

func TestOpenNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bad.safetensors")
	if err := os.WriteFile(path, file(`{}`, 3), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), path) {
		t.Errorf("bad file: %v", err)
	}
	if _, err := Open(filepath.Dir(path)); !errors.Is(err, ErrFormat) {
		t.Errorf("folder: %v", err)
	}
	if _, err := Open(path + ".gone"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

func TestClosedFile(t *testing.T) {
	f, err := Open("testdata/reference.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Bytes("nothing"); err == nil || !strings.Contains(err.Error(), `no tensor "nothing"`) {
		t.Errorf("a name that is not there: %v", err)
	}
	closeFile(t, f)
	closeFile(t, f)
	if _, err := f.Bytes("matrix"); !errors.Is(err, os.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestWriteRefuses(t *testing.T) {
	for _, c := range []struct {
		name     string
		metadata map[string]string
		tensors  []Tensor
		want     string
	}{
		{"a name twice", nil, []Tensor{{Name: "a", DType: "U8", Shape: []int{0}}, {Name: "a", DType: "U8", Shape: []int{0}}},
			`"a" appears twice`},
		{"the metadata's name", nil, []Tensor{{Name: "__metadata__", DType: "U8", Shape: []int{0}}}, "__metadata__"},
		{"a name that is not UTF-8", nil, []Tensor{{Name: "\xff", DType: "U8", Shape: []int{0}}}, "UTF-8"},
		{"metadata that are not UTF-8", map[string]string{"a": "\xff"}, nil, "UTF-8"},
		{"unknown dtype", nil, []Tensor{{Name: "a", DType: "float32", Shape: []int{0}}}, `tensor "a": unknown dtype "float32"`},
		{"negative dimension", nil, []Tensor{{Name: "a", DType: "U8", Shape: []int{-1}}}, `tensor "a": dimension -1`},
		{"too few bytes", nil, []Tensor{{Name: "a", DType: "F32", Shape: []int{2}, Data: make([]byte, 7)}},
			"7 bytes of data, but F32 [2] takes 8"},
		{"sum overflows", nil, []Tensor{
			{Name: "a", DType: "U8", Shape: []int{math.MaxInt}, Stream: zeros(0)},
			{Name: "b", DType: "U8", Shape: []int{1}, Stream: zeros(0)},
		}, "exceed 2^63 bytes"},
		{"short stream", nil, []Tensor{{Name: "a", DType: "U8", Shape: []int{4}, Stream: zeros(3)}},
			`tensor "a": its stream ended after 3 of 4 bytes`},
		{"long stream", nil, []Tensor{{Name: "a", DType: "U8", Shape: []int{4}, Stream: zeros(5)}},
			`tensor "a": its stream continues for at least 1 bytes after`},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := Write(io.Discard, c.metadata, c.tensors)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v, want %q in it", err, c.want)
			}
		})
	}
}

func zeros(n int) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(make([]byte, n))
		return err
	}
}

func TestRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.safetensors")
	dtypes := slices.Sorted(maps.Keys(elementBytes))
	rapid.Check(t, func(t *rapid.T) {
		var tensors []Tensor
		data := make(map[string][]byte)
		for i := range rapid.IntRange(0, 8).Draw(t, "tensors") {
			name := fmt.Sprintf("%s.%d", rapid.String().Draw(t, "name"), i)
			tensor := Tensor{
				Name:  name,
				DType: rapid.SampledFrom(dtypes).Draw(t, "dtype"),
				Shape: rapid.SliceOfN(rapid.IntRange(0, 4), 0, 5).Draw(t, "shape"),
			}
			size, err := tensor.Size()
			if err != nil {
				t.Fatal(err)
			}
			data[name] = rapid.SliceOfN(rapid.Byte(), int(size), int(size)).Draw(t, "data")
			if rapid.Bool().Draw(t, "streamed") {
				tensor.Stream = inTwo(data[name])
			} else {
				tensor.Data = data[name]
			}
			tensors = append(tensors, tensor)
		}
		metadata := rapid.MapOfN(rapid.String(), rapid.String(), 0, 3).Draw(t, "metadata")

		prepared, err := Prepare(metadata, tensors)
		if err != nil {
			t.Fatal(err)
		}
		var content bytes.Buffer
		n, err := prepared.WriteTo(&content)
		if err != nil || n != prepared.Size() || int64(content.Len()) != n {
			t.Fatalf("wrote %d, %d bytes, want %d: %v", n, content.Len(), prepared.Size(), err)
		}
		if length := binary.LittleEndian.Uint64(content.Bytes()); length%8 != 0 {
			t.Fatalf("the header takes %d bytes, no multiple of 8", length)
		}
		if err := os.WriteFile(path, content.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}

		f, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := f.Metadata(); !maps.Equal(got, metadata) {
			t.Errorf("metadata %q, want %q", got, metadata)
		}
		if got := len(f.Names()); got != len(tensors) {
			t.Errorf("%d tensors, want %d", got, len(tensors))
		}
		for _, want := range tensors {
			info, ok := f.Info(want.Name)
			if !ok || info.DType != want.DType || !slices.Equal(info.Shape, want.Shape) || info.Offset%elementBytes[want.DType] != 0 {
				t.Errorf("%+v, want %+v", info, want)
			}
			if got, err := f.Bytes(want.Name); err != nil || !bytes.Equal(got, data[want.Name]) {
				t.Errorf("%q: %v, %v", want.Name, got, err)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// inTwo writes its data in two pieces.
func inTwo(data []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		if _, err := w.Write(data[:len(data)/2]); err != nil {
			return err
		}
		_, err := w.Write(data[len(data)/2:])
		return err
	}
}

func TestFloat32(t *testing.T) {
	values := make([]float32, 40_000) // more than one chunk of the stream
	for i := range values {
		values[i] = float32(i) / 3
	}
	var streamed bytes.Buffer
	tensor := F32("a", []int{200, 200}, values)
	for range 2 { // a save may be tried again
		streamed.Reset()
		if err := tensor.Stream(&streamed); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(streamed.Bytes(), EncodeFloat32(values)) {
			t.Error("the stream and EncodeFloat32 differ")
		}
	}
	got, err := Float32s("F32", streamed.Bytes())
	if err != nil || !slices.Equal(got, values) {
		t.Errorf("decoded values differ, error %v", err)
	}

	for _, c := range []struct {
		dtype    string
		elements int
		bytes    int
		want     string
	}{
		{"F64", 1, 8, "dtype F64 cannot be converted"},
		{"F32", 2, 4, "4 bytes of F32 hold 1 elements, but the destination holds 2"},
		{"F32", 1, 5, "5 bytes of F32"},
		{"BF16", 1, 4, "4 bytes of BF16 hold 2 elements, but the destination holds 1"},
	} {
		err := DecodeFloat32(make([]float32, c.elements), c.dtype, make([]byte, c.bytes))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// Every half, against the value that the format's definition gives.
func TestWidenHalf(t *testing.T) {
	for h := range 1 << 16 {
		sign, exponent, fraction := 1.0, h>>10&0x1f, float64(h&0x3ff)
		if h>>15 == 1 {
			sign = -1
		}
		var want float64
		switch {
		case exponent == 0x1f && fraction == 0:
			want = math.Inf(int(sign))
		case exponent == 0x1f:
			want = math.NaN()
		case exponent == 0:
			want = sign * math.Ldexp(fraction, -24)
		default:
			want = sign * math.Ldexp(1+fraction/1024, exponent-15)
		}
		got := float64(widenHalf(uint16(h)))
		if got != want && !(math.IsNaN(got) && math.IsNaN(want)) || math.Signbit(got) != (h>>15 == 1) {
			t.Fatalf("%#04x: %v, want %v", h, got, want)
		}
	}
}

// FuzzHeader: no input panics, and what is accepted keeps every promise of the
// reader and survives a round through the writer.
func FuzzHeader(f *testing.F) {
	reference, err := os.ReadFile("testdata/reference.safetensors")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(reference)
	f.Add(file(`{}`, 0))
	f.Add(file(`{"__metadata__":{"format":"pt"},`+entry("a", "F32", "2,3", 0, 24)+`,`+entry("b", "BF16", "", 24, 26)+`}`, 26))
	f.Add(file(`{`+entry("a", "U8", "4294967296,4294967296", 0, 0)+`}`, 0))
	f.Add(file(`{`+entry("a", "U8", "1", 0, 1)+`,`+entry("b", "U8", "1", 2, 3)+`}`, 3))
	f.Add(binary.LittleEndian.AppendUint64(nil, math.MaxUint64))
	f.Fuzz(func(t *testing.T, content []byte) {
		h, err := Parse(bytes.NewReader(content), int64(len(content)))
		if err != nil {
			if !errors.Is(err, ErrFormat) && !errors.Is(err, ErrTruncated) {
				t.Fatalf("neither ErrFormat nor ErrTruncated: %v", err)
			}
			return
		}
		var tensors []Tensor
		end := h.data
		for _, name := range h.Names() {
			info, ok := h.Info(name)
			size, err := byteSize(info.DType, info.Shape)
			if !ok || err != nil || info.Size != size || h.data+info.Offset != end {
				t.Fatalf("tensor %q: %+v at %d, %v", name, info, end, err)
			}
			end += info.Size
			tensors = append(tensors, Tensor{Name: name, DType: info.DType, Shape: info.Shape, Data: content[end-size : end]})
		}
		if end != int64(len(content)) {
			t.Fatalf("the tensors end at %d of %d bytes", end, len(content))
		}
		var again bytes.Buffer
		if err := Write(&again, h.Metadata(), tensors); err != nil {
			t.Fatal(err)
		}
		second, err := Parse(bytes.NewReader(again.Bytes()), int64(again.Len()))
		if err != nil || len(second.Names()) != len(tensors) || !maps.Equal(second.Metadata(), h.Metadata()) {
			t.Fatalf("after a round trip: %v", err)
		}
	})
}
