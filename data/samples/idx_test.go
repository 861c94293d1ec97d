package samples

import (
	"errors"
	"math"
	"reflect"
	"testing"

	"github.com/troupe-ml/troupe/tensorops"
)

func TestIDX(t *testing.T) {
	images := idxOf(8, []uint32{3, 2, 2}, []uint8{0, 51, 102, 255, 1, 2, 3, 4, 5, 6, 7, 8})
	labels := idxOf(8, []uint32{3}, []uint8{2, 0, 1})
	for name, c := range map[string]struct {
		images, labels string
		o              Options
		fields         []Field
		want           Sample // the first
	}{
		"MNIST": {images, labels, Options{}, []Field{{Name: "x", Shape: []int{2, 2}}, {Name: "y", DType: tensorops.Int32, Classes: 3}},
			Sample{floats([]int{2, 2}, 0, 0.2, 0.4, 1), ints([]int{}, 2)}},
		"compressed, ten classes": {zipped(t, images), zipped(t, labels), Options{Classes: 10, Scale: 1, FeatureField: "image",
			LabelField: "digit"},
			[]Field{{Name: "image", Shape: []int{2, 2}}, {Name: "digit", DType: tensorops.Int32, Classes: 10}},
			Sample{floats([]int{2, 2}, 0, 51, 102, 255), ints([]int{}, 2)}},
		"without labels": {images, "", Options{}, []Field{{Name: "x", Shape: []int{2, 2}}}, Sample{floats([]int{2, 2}, 0, 0.2, 0.4, 1)}},
		"int8": {idxOf(9, []uint32{1, 2}, []int8{-3, 4}), "", Options{}, []Field{{Name: "x", Shape: []int{2}}},
			Sample{floats([]int{2}, -3, 4)}},
		"int16": {idxOf(0xb, []uint32{1, 2}, []int16{-300, 4}), "", Options{}, []Field{{Name: "x", Shape: []int{2}}},
			Sample{floats([]int{2}, -300, 4)}},
		"int32": {idxOf(0xc, []uint32{1, 2}, []int32{-70000, 4}), "", Options{}, []Field{{Name: "x", Shape: []int{2}}},
			Sample{floats([]int{2}, -70000, 4)}},
		"float32": {idxOf(0xd, []uint32{1, 2}, []float32{-1.5, 4}), "", Options{Scale: 2}, []Field{{Name: "x", Shape: []int{2}}},
			Sample{floats([]int{2}, -3, 8)}},
		"float64": {idxOf(0xe, []uint32{1, 2}, []float64{-1.5, 4}), "", Options{}, []Field{{Name: "x", Shape: []int{2}}},
			Sample{floats([]int{2}, -1.5, 4)}},
		"a label for each pixel": {idxOf(9, []uint32{1, 2}, []int8{1, 2}), idxOf(0xc, []uint32{1, 2}, []int32{0, 4}), Options{},
			[]Field{{Name: "x", Shape: []int{2}}, {Name: "y", DType: tensorops.Int32, Shape: []int{2}, Classes: 5}},
			Sample{floats([]int{2}, 1, 2), ints([]int{2}, 0, 4)}},
	} {
		c.o.Format, c.o.Files = "idx", []string{write(t, "images", c.images)}
		if c.labels != "" {
			c.o.Labels = []string{write(t, "labels", c.labels)}
		}
		d, err := Open(c.o)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !reflect.DeepEqual(d.Fields(), c.fields) {
			t.Errorf("%s: fields %v, want %v", name, d.Fields(), c.fields)
		}
		if got := all(t, d); !equalSamples(got[:1], []Sample{c.want}) {
			t.Errorf("%s: sample %v, want %v", name, got[0], c.want)
		}
	}
}

func TestIDXErrors(t *testing.T) {
	images := idxOf(8, []uint32{3, 2, 2}, make([]uint8, 12))
	labels := idxOf(8, []uint32{3}, []uint8{2, 0, 1})
	for _, c := range []struct {
		name, images, labels string
		o                    Options
		is                   error
		want                 string
	}{
		{"empty", "", "", Options{}, ErrFormat,
			"DIR, byte 0: malformed data: the file ends in its header: it is truncated, or has another format"},
		{"no dimensions", images[:7], "", Options{}, ErrFormat,
			"DIR, byte 7: malformed data: the file ends in its header: it is truncated, or has another format"},
		{"another format", "P5 8 8 255 ", "", Options{}, ErrFormat,
			"DIR, byte 0: malformed data: the file starts with 50 35 20 38, but an IDX file starts with 00 00, a type of 08 09 0b 0c 0d 0e, and the number of dimensions: check the format"},
		{"another type", "\x00\x00\x0a\x01\x00\x00\x00\x01x", "", Options{}, ErrFormat,
			"DIR, byte 0: malformed data: the file starts with 00 00 0a 01, but an IDX file starts with 00 00, a type of 08 09 0b 0c 0d 0e, and the number of dimensions: check the format"},
		{"no dimension", "\x00\x00\x08\x00", "", Options{}, ErrFormat,
			"DIR, byte 3: malformed data: the file has 0 dimensions: want from 1 to 6, the first of which is the samples"},
		{"too many", "\x00\x00\x08\x09", "", Options{}, ErrFormat,
			"DIR, byte 3: malformed data: the file has 9 dimensions: want from 1 to 6, the first of which is the samples"},
		{"no samples", idxOf(8, []uint32{0, 2}), "", Options{}, ErrFormat,
			"DIR, byte 4: malformed data: dimension 0 is 0: it must be from 1 to 2147483647"},
		{"huge", idxOf(8, []uint32{1 << 31, 2}), "", Options{}, ErrFormat,
			"DIR, byte 4: malformed data: dimension 0 is 2147483648: it must be from 1 to 2147483647"},
		{"more than an int64", idxOf(0xe, []uint32{1 << 30, 1 << 30, 1 << 30}), "", Options{}, ErrFormat,
			"DIR, byte 8: malformed data: samples whose shape starts with [1073741824] have too many elements"},
		{"many that are not there", idxOf(8, []uint32{1 << 30, 1 << 20}, []uint8{1}), "", Options{}, ErrFormat,
			"DIR, byte 13: malformed data: the file ends after 0 of 1073741824 samples of 1048576 bytes each: it is truncated; get it again"},
		{"more than the memory", zipped(t, idxOf(8, []uint32{1 << 30, 1 << 30})), "", Options{}, ErrOptions, "memory"},
		{"cut", images[:25], "", Options{}, ErrFormat,
			"DIR, byte 25: malformed data: the file ends after 2 of 3 samples of 4 bytes each: it is truncated; get it again"},
		{"cut and compressed", zipped(t, images[:25]), "", Options{}, ErrFormat,
			"DIR, byte 25: malformed data: the file ends after 2 of 3 samples of 4 bytes each: it is truncated; get it again"},
		{"trailing", images + "x", "", Options{}, ErrFormat,
			"DIR, byte 28: malformed data: the file continues after its 3 samples of 4 bytes: the first dimension is wrong, or data was appended; get the file again"},
		{"trailing and compressed", zipped(t, images+"x"), "", Options{}, ErrFormat,
			"DIR, byte 28: malformed data: the file continues after its 3 samples of 4 bytes: the first dimension is wrong, or data was appended; get the file again"},
		{"infinite", idxOf(0xd, []uint32{2, 1}, float32(1), float32(math.Inf(1))), "", Options{}, ErrFormat,
			"DIR, byte 16: malformed data: sample 1 has +Inf, which is not a finite number"},
		{"too large", idxOf(0xe, []uint32{2, 1}, 1.0, 1e300), "", Options{}, ErrFormat,
			"DIR, byte 20: malformed data: sample 1 has 1e+300, which is too large for float32"},
		{"fewer labels", images, idxOf(8, []uint32{2}, []uint8{2, 0}), Options{}, ErrFormat,
			`LABELS, byte 4: malformed data: there are 2 labels, but DIR has 3 samples: the two files do not belong together`},
		{"labels cut", images, labels[:10], Options{}, ErrFormat,
			"LABELS, byte 10: malformed data: the file ends after 2 of 3 samples of 1 bytes each: it is truncated; get it again"},
		{"a label too large", images, labels, Options{Classes: 2}, ErrLabel,
			"LABELS, byte 8: the label of sample 0: label outside the classes: found 2, but the 2 classes are numbered 0 to 1: fix it, or set data.classes"},
		{"a label below 0", images, idxOf(9, []uint32{3}, []int8{0, -1, 0}), Options{}, ErrLabel,
			"LABELS, byte 9: the label of sample 1: label outside the classes: found -1, but classes are numbered from 0: renumber them, or use names"},
		{"labels of floats", images, idxOf(0xd, []uint32{3}, []float32{1, 2, 3}), Options{}, ErrFormat,
			"LABELS, byte 2: malformed data: the labels have type 0d: they must be integers, of type 08, 09, 0b or 0c"},
	} {
		c.o.Format, c.o.Files = "idx", []string{write(t, "DIR", c.images)}
		if c.labels != "" {
			c.o.Labels = []string{write(t, "LABELS", c.labels)}
		}
		_, err := Open(c.o)
		got := place(err, c.o.Files[0])
		if c.labels != "" {
			got = placeText(got, c.o.Labels[0])
		}
		if c.want == "memory" && errors.Is(err, c.is) {
			continue // how much there is differs from machine to machine
		}
		if got != c.want || !errors.Is(err, c.is) {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
	o := Options{Format: "idx", Files: []string{write(t, "a", images)}, Labels: []string{"b", "c"}}
	if _, err := Open(o); !errors.Is(err, ErrOptions) {
		t.Errorf("two files of labels for one of samples: %v", err)
	}
	o = Options{Format: "idx", Files: []string{write(t, "a", images), write(t, "b", labels)}}
	if _, err := Open(o); !errors.Is(err, ErrShape) {
		t.Errorf("files of two shapes: %v", err)
	}
}

// Whatever is missing at the end of a file, it is refused.
func TestIDXTruncated(t *testing.T) {
	whole := idxOf(0xb, []uint32{3, 2}, make([]int16, 6))
	for n := range len(whole) {
		for _, text := range []string{whole[:n], zipped(t, whole)[:n]} {
			if _, err := Open(Options{Format: "idx", Files: []string{write(t, "a", text)}}); !errors.Is(err, ErrFormat) {
				t.Errorf("%d bytes: %v", n, err)
			}
		}
	}
}

func TestIDXFiles(t *testing.T) {
	file := func(first uint8) string {
		return write(t, "a", idxOf(8, []uint32{2, 1}, []uint8{first, first + 1}))
	}
	d, err := Open(Options{Format: "idx", Files: []string{file(0), file(2), file(4)}, Labels: []string{file(0), file(2), file(4)}, Scale: 1})
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range all(t, d) {
		if s[0].Float[0] != float32(i) || s[1].Int[0] != int32(i) {
			t.Errorf("sample %d is %v", i, s)
		}
	}
	if d.Len() != 6 || d.Fields()[1].Classes != 6 {
		t.Errorf("%d samples of %v", d.Len(), d.Fields())
	}
	if _, err := d.At(6); err == nil {
		t.Error("there is a seventh")
	}
}

func FuzzIDX(f *testing.F) {
	f.Add([]byte(idxOf(8, []uint32{3, 2, 2}, make([]uint8, 12))), []byte(idxOf(8, []uint32{3}, []uint8{2, 0, 1})))
	f.Add([]byte(zipped(f, idxOf(0xe, []uint32{1, 1}, 1.0))), []byte{})
	f.Add([]byte(idxOf(0xe, []uint32{1 << 30, 1 << 30, 1 << 30})), []byte("\x00\x00\x08\x00"))
	f.Fuzz(func(t *testing.T, images, labels []byte) {
		o := Options{Format: "idx", Files: []string{write(t, "a", string(images))}}
		if len(labels) > 0 {
			o.Labels = []string{write(t, "b", string(labels))}
		}
		sound(t, o)
	})
}
