package gguf_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/troupe-ml/troupe/internal/base/rng"
	"github.com/troupe-ml/troupe/internal/gguf"
	"github.com/troupe-ml/troupe/internal/safetensors"
)

// entries has a value of every type.
var entries = []gguf.Entry{
	{Key: "general.architecture", Value: "llama"}, {Key: "a.u8", Value: uint8(255)}, {Key: "a.i8", Value: int8(-128)},
	{Key: "a.u16", Value: uint16(65535)}, {Key: "a.i16", Value: int16(-1)}, {Key: "a.u32", Value: uint32(1 << 31)},
	{Key: "a.i32", Value: int32(-7)},
	{Key: "a.f32", Value: float32(1e-6)}, {Key: "a.bool", Value: true}, {Key: "a.u64", Value: uint64(math.MaxUint64)},
	{Key: "a.i64", Value: int64(math.MinInt64)}, {Key: "a.f64", Value: math.Pi}, {Key: "a.text", Value: "▁ ü"},
	{Key: "l.u8", Value: []uint8{1, 2}}, {Key: "l.i8", Value: []int8{-1}}, {Key: "l.u16", Value: []uint16{3}},
	{Key: "l.i16", Value: []int16{-3}},
	{Key: "l.u32", Value: []uint32{4, 5}}, {Key: "l.i32", Value: []int32{-6}}, {Key: "l.f32", Value: []float32{1.5, -2}},
	{Key: "l.bool", Value: []bool{true, false}}, {Key: "l.text", Value: []string{"a", "", "ü"}}, {Key: "l.u64", Value: []uint64{7}},
	{Key: "l.i64", Value: []int64{-8}}, {Key: "l.f64", Value: []float64{0.5}}, {Key: "l.none", Value: []string{}},
}

// normal returns reproducible numbers.
func normal(n int) []float32 {
	out := make([]float32, n)
	rng.Normal(out, rng.NewKey(1, rng.StringStream("gguf")), 0, 0, 1)
	return out
}

func tensor(name string, t gguf.Type, values []float32, shape ...int) gguf.Tensor {
	return gguf.Converted(name, t, shape, "F32", func() ([]byte, error) { return safetensors.EncodeFloat32(values), nil })
}

// file returns a file with tensors of all types.
func file(t testing.TB, more ...gguf.Entry) []byte {
	t.Helper()
	values := normal(3 * 64)
	p, err := gguf.Prepare(append(slices.Clone(entries), more...), []gguf.Tensor{
		tensor("one", gguf.F32, values[:5], 5), tensor("half", gguf.F16, values[:6], 2, 3), tensor("brain", gguf.BF16, values[:6], 1, 2, 3),
		tensor("eight", gguf.Q8_0, values, 3, 64),
	})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if n, err := p.WriteTo(&b); err != nil || n != p.Size() || int64(b.Len()) != n {
		t.Fatalf("wrote %d bytes of %d: %v", n, p.Size(), err)
	}
	return b.Bytes()
}

func parse(data []byte) (*gguf.Header, error) {
	return gguf.Parse(bytes.NewReader(data), int64(len(data)))
}

func TestRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.gguf")
	if err := os.WriteFile(path, file(t), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(f.Entries(), entries) {
		t.Errorf("entries %+v", f.Entries())
	}
	values := normal(3 * 64)
	for _, want := range []struct {
		name   string
		shape  []int
		values []float32
		within float64
	}{
		{"one", []int{5}, values[:5], 0}, {"half", []int{2, 3}, values[:6], 1e-3}, {"brain", []int{1, 2, 3}, values[:6], 1e-2},
		{"eight", []int{3, 64}, values, 0.02},
	} {
		info, _ := f.Info(want.name)
		got, err := f.Float32s(want.name)
		if err != nil || !slices.Equal(info.Shape, want.shape) || len(got) != len(want.values) {
			t.Fatalf("%s: %+v, %d numbers, %v", want.name, info, len(got), err)
		}
		for i, v := range want.values {
			if math.Abs(float64(got[i]-v)) > want.within*math.Max(1, math.Abs(float64(v))) {
				t.Errorf("%s: element %d is %g, want %g", want.name, i, got[i], v)
			}
		}
	}
	if err := errors.Join(f.Close(), f.Close()); err != nil {
		t.Error(err)
	}
	if _, err := f.Bytes("one"); !errors.Is(err, os.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestQ8 compares blocks with a float64 computation of the same rounding, element by element.
func TestQ8(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		scale := math.Pow(2, float64(rapid.IntRange(-40, 20).Draw(t, "scale")))
		values := make([]float32, 2*gguf.BlockQ8)
		for i := range values {
			values[i] = float32(rapid.Float64Range(-scale, scale).Draw(t, "value"))
		}
		got := blocks(t, values)
		for at := 0; at < len(values); at += gguf.BlockQ8 {
			var most float32
			for _, v := range values[at : at+gguf.BlockQ8] {
				most = max(most, v, -v)
			}
			d := most / 127
			half := safetensors.HalfValue(safetensors.Half(d))
			for i, v := range values[at : at+gguf.BlockQ8] {
				want := float32(0)
				if half != 0 {
					want = float32(math.Round(float64(v*(1/d))) * float64(half))
				}
				if got[at+i] != want {
					t.Fatalf("%g in a block up to %g is %g, want %g", v, most, got[at+i], want)
				}
			}
		}
	})
}

// TestQ8Small: blocks whose scale is 0 as a half have the same bytes as those of ggml, which tests the float32 scale.
func TestQ8Small(t *testing.T) {
	for most, last := range map[float32]byte{3e-6: 127, 1e-30: 127, 1e-40: 0, 0: 0} {
		values := make([]float32, gguf.BlockQ8)
		values[31] = most
		var b bytes.Buffer
		p := gguf.Converted("one", gguf.Q8_0, []int{gguf.BlockQ8}, "F32", func() ([]byte, error) {
			return safetensors.EncodeFloat32(values), nil
		})
		if err := p.Stream(&b); err != nil {
			t.Fatal(err)
		}
		if got := b.Bytes(); got[0] != 0 || got[1] != 0 || got[33] != last {
			t.Errorf("up to %g: %d, want the scale 0 and %d last", most, got, last)
		}
	}
}

func blocks(t interface{ Fatal(...any) }, values []float32) []float32 {
	dir, err := os.MkdirTemp("", "gguf")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "x.gguf")
	p, err := gguf.Prepare(nil, []gguf.Tensor{tensor("x", gguf.Q8_0, values, len(values))})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := p.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	got, err := f.Float32s("x")
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	return got
}

// TestUnstorable: numbers that a type can't hold are an error with their place.
func TestUnstorable(t *testing.T) {
	for _, c := range []struct {
		to     gguf.Type
		values []float32
		says   string
	}{
		{gguf.F16, []float32{1, 70000}, "element 1 is 70000"},
		{gguf.Q8_0, slices.Repeat([]float32{float32(math.NaN())}, 32), "element 0 is NaN, which Q8_0 cannot store"},
		{gguf.Q8_0, slices.Repeat([]float32{1e8}, 32), "element 0 is 1e+08, which Q8_0 cannot store"},
	} {
		p, err := gguf.Prepare(nil, []gguf.Tensor{tensor("x", c.to, c.values, len(c.values))})
		if err == nil {
			_, err = p.WriteTo(io.Discard)
		}
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: %v, want %q", c.to, err, c.says)
		}
	}
	for _, c := range []struct {
		tensor gguf.Tensor
		says   string
	}{
		{tensor("x", gguf.Q8_0, nil, 2, 48), "48 elements are not whole blocks of 32"}, {tensor("x", gguf.F32, nil), "0 dimensions"},
		{tensor("", gguf.F32, nil, 1), "is empty or occurs twice"}, {tensor("x", 12, nil, 256), "its type is Q4_K"},
	} {
		if _, err := gguf.Prepare(nil, []gguf.Tensor{c.tensor}); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v, want %q", err, c.says)
		}
	}
}

// TestTruncated: a file that ends anywhere is refused.
func TestTruncated(t *testing.T) {
	data := file(t)
	header, err := parse(data)
	if err != nil {
		t.Fatal(err)
	}
	last := header.Tensors()[3]
	whole := len(data) - (32-int(last.Size)%32)%32 // padding after the last tensor may be missing
	for n := range whole {
		if _, err := parse(data[:n]); !errors.Is(err, gguf.ErrTruncated) && !errors.Is(err, gguf.ErrFormat) {
			t.Fatalf("%d of %d bytes: %v", n, len(data), err)
		}
	}
}

// raw builds headers that no writer makes.
type raw struct{ b []byte }

func (r *raw) u32(v uint32) *raw { r.b = binary.LittleEndian.AppendUint32(r.b, v); return r }
func (r *raw) u64(v uint64) *raw { r.b = binary.LittleEndian.AppendUint64(r.b, v); return r }
func (r *raw) text(s string) *raw {
	r.u64(uint64(len(s))).b = append(r.b, s...)
	return r
}

func start(tensors, entries uint64) *raw {
	return (&raw{b: []byte("GGUF")}).u32(3).u64(tensors).u64(entries)
}

// one adds a tensor.
func (r *raw) one(name string, kind uint32, offset uint64, dims ...uint64) *raw {
	r.text(name).u32(uint32(len(dims)))
	for _, d := range dims {
		r.u64(d)
	}
	return r.u32(kind).u64(offset)
}

// TestHostile: each lie is refused with what it is about, and next to nothing is allocated for it.
func TestHostile(t *testing.T) {
	const much = 1 << 63
	for _, c := range []struct {
		name string
		data *raw
		says string
	}{
		{"magic", &raw{b: []byte("GGML\x03\x00\x00\x00")}, `starts with "GGML"`},
		{"version", (&raw{b: []byte("GGUF")}).u32(1), "its version is 1"},
		{"big endian", (&raw{b: []byte("GGUF")}).u32(3 << 24), "big-endian"},
		{"tensors", start(1<<40, 0), "1099511627776 tensors of at least"},
		{"entries", start(0, 1<<63), "9223372036854775808 entries of at least"},
		{"key", start(0, 1).u64(much), "a string of 9223372036854775808 bytes"},
		{"text", start(0, 1).text("general.name").u32(8).u64(much),
			`"general.name": not a valid GGUF file: a string of 9223372036854775808 bytes`},
		{"kind", start(0, 1).text("x").u32(13).u64(0), `"x": type 13`},
		{"array", start(0, 1).text("x").u32(9).u32(4).u64(much), "9223372036854775808 elements"},
		{"array of text", start(0, 1).text("x").u32(9).u32(8).u64(1 << 20), "1048576 elements of at least 8 bytes"},
		{"array kind", start(0, 1).text("x").u32(9).u32(77).u64(1), "its elements have type 77"},
		{"nested", start(0, 1).text("x").u32(9).u32(9).u64(1).u32(9), "array of arrays"},
		{"bool", start(0, 1).text("x").u32(7).u32(2), "a bool is 2"},
		{"twice", start(0, 2).text("x").u32(4).u32(1).text("x").u32(4).u32(1), `the key "x" is empty or occurs twice`},
		{"rank", start(1, 0).text("t").u32(9).u64(0).u64(0).u64(0), "it has 9 dimensions"},
		{"no rank", start(1, 0).text("t").u32(0).u64(0).u64(0).u64(0), "it has 0 dimensions"},
		{"negative", start(1, 0).one("t", 0, 0, math.MaxUint64), `"t": a dimension is 18446744073709551615`},
		{"zero", start(1, 0).one("t", 0, 0, 0), "dimension 0"},
		{"overflow", start(1, 0).one("t", 0, 0, 1<<31, 1<<31, 1<<31), "more than 2^63 bytes"},
		{"type", start(1, 0).one("t", 12, 0, 256), `tensor 1 of 1: "t": its type is Q4_K`},
		{"new type", start(1, 0).one("t", 1000, 0, 256), "its type is type 1000"},
		{"blocks", start(1, 0).one("t", 8, 0, 33), "not whole blocks of 32"},
		{"offset", start(1, 0).one("t", 0, math.MaxUint64, 1), "its offset is 18446744073709551615"},
		{"far", start(1, 0).one("t", 0, 1<<62, 1), `tensor "t" takes 4 bytes from byte 4611686018427387904`},
		{"end", start(1, 0).one("t", 0, math.MaxInt64-31, 8), "takes 32 bytes from byte 9223372036854775776"},
		{"misaligned", start(1, 0).one("t", 0, 4, 1).u64(0).u64(0), "not a multiple of the alignment 32"},
		{"overlap", start(2, 0).one("t", 0, 0, 16).one("u", 0, 32, 1), `tensor "u" starts at byte 32 of the data and overlaps`},
		{"names", start(2, 0).one("t", 0, 0, 1).one("t", 0, 32, 1), `the name "t" is empty or occurs twice`},
		{"alignment", start(0, 1).text("general.alignment").u32(4).u32(24), "general.alignment is 24"},
		{"no alignment", start(0, 1).text("general.alignment").u32(4).u32(0), "general.alignment is 0"},
		{"huge alignment", start(0, 1).text("general.alignment").u32(4).u32(1 << 31), "general.alignment is 2147483648"},
		{"alignment text", start(0, 1).text("general.alignment").u32(8).text("32"), "general.alignment is a string"},
	} {
		t.Run(c.name, func(t *testing.T) {
			data := append(c.data.b, make([]byte, 256)...)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := parse(data)
			runtime.ReadMemStats(&after)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v, want %q in it", err, c.says)
			}
			if !errors.Is(err, gguf.ErrFormat) && !errors.Is(err, gguf.ErrTruncated) {
				t.Errorf("error %v is no ErrFormat", err)
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
				t.Errorf("%d bytes were allocated", n)
			}
		})
	}
}

// TestWriterRefuses: values and streams that cannot be written.
func TestWriterRefuses(t *testing.T) {
	if _, err := gguf.Prepare([]gguf.Entry{{Key: "x", Value: 3}}, nil); err == nil || !strings.Contains(err.Error(), "type int has no form") {
		t.Error(err)
	}
	for n, says := range map[int]string{1: "ended after 4 of 8 bytes", 3: "continues for at least 4 bytes"} {
		p, err := gguf.Prepare(nil, []gguf.Tensor{{Name: "x", Type: gguf.F32, Shape: []int{2}, Stream: func(w io.Writer) error {
			_, err := w.Write(make([]byte, 4*n))
			return err
		}}})
		if err == nil {
			_, err = p.WriteTo(io.Discard)
		}
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}

// FuzzGGUF: no input panics, and what is read can be written again and is the same.
func FuzzGGUF(f *testing.F) {
	whole := file(f, gguf.Entry{Key: "general.alignment", Value: uint32(64)})
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Add(start(1, 1).text("x").u32(9).u32(8).u64(1).text("y").one("t", 0, 0, 1).b)
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := parse(data)
		if err != nil {
			return
		}
		var tensors []gguf.Tensor
		for _, i := range h.Tensors() {
			tensors = append(tensors, gguf.Tensor{Name: i.Name, Type: i.Type, Shape: i.Shape, Stream: func(w io.Writer) error {
				_, err := w.Write(make([]byte, i.Size)) // as many as there are in data
				return err
			}})
		}
		p, err := gguf.Prepare(h.Entries(), tensors)
		if err != nil {
			if strings.Contains(err.Error(), "UTF-8") {
				return
			}
			t.Fatal(err)
		}
		var b bytes.Buffer
		if _, err := p.WriteTo(&b); err != nil {
			t.Fatal(err)
		}
		again, err := parse(b.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if len(again.Tensors()) != len(h.Tensors()) || len(again.Entries()) != len(h.Entries()) {
			t.Fatalf("%d tensors and %d entries became %d and %d", len(h.Tensors()), len(h.Entries()), len(again.Tensors()), len(again.Entries()))
		}
	})
}
