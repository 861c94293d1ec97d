package samples

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/internal/data"
	"github.com/troupe-ml/troupe/tensorops"
)

func TestJSONL(t *testing.T) {
	for _, c := range []struct {
		name, text string
		o          Options
		fields     []Field
		want       []Sample
		classes    []string
	}{
		{"a matrix and a label", `{"x":[[1,2],[3,4e1]],"y":3,"note":{"a":[]}}` + "\n\n" + ` {"y" : 0.0, "x" : [ [0,0] , [ -1.5,0 ] ] } `,
			Options{Label: "y"},
			[]Field{{Name: "x", Shape: []int{2, 2}}, {Name: "y", DType: tensorops.Int32, Classes: 4}},
			[]Sample{{floats([]int{2, 2}, 1, 2, 3, 40), ints(nil, 3)}, {floats([]int{2, 2}, 0, 0, -1.5, 0), ints(nil, 0)}}, nil},
		{"names", `{"x":1,"y":"pear"}` + "\n" + `{"x":2,"y":"\u0061pple"}`, Options{Label: "y"},
			[]Field{{Name: "x"}, {Name: "y", DType: tensorops.Int32, Classes: 2}},
			[]Sample{{floats(nil, 1), ints(nil, 1)}, {floats(nil, 2), ints(nil, 0)}}, []string{"apple", "pear"}},
		{"targets", `{"a":[1],"b":2,"p":[8,9]}`, Options{Features: []string{"b", "a"}, Targets: []string{"p"}, Scale: 0.5},
			[]Field{{Name: "b"}, {Name: "a", Shape: []int{1}}, {Name: "p", Shape: []int{2}}},
			[]Sample{{floats(nil, 1), floats([]int{1}, 0.5), floats([]int{2}, 8, 9)}}, nil},
		{"sequences", `{"src":[1,2,3],"dst":[[4,5]]}` + "\r\n" + `{"src":[6],"dst":[[7,8],[9,10]]}` + "\r\n",
			Options{Features: []string{"src"}, Targets: []string{"dst"}, IDs: []string{"src", "dst"}, Varying: []string{"src", "dst"}},
			[]Field{{Name: "src", DType: tensorops.Int32, Shape: []int{-1}}, {Name: "dst", DType: tensorops.Int32, Shape: []int{-1, 2}}},
			[]Sample{{ints([]int{3}, 1, 2, 3), ints([]int{1, 2}, 4, 5)}, {ints([]int{1}, 6), ints([]int{2, 2}, 7, 8, 9, 10)}}, nil},
		{"one length", `{"x":[1,2]}`, Options{Varying: []string{"x"}}, []Field{{Name: "x", Shape: []int{-1}}}, []Sample{{floats([]int{2}, 1, 2)}},
			nil},
		{"compressed", zipped(t, "\ufeff"+`{"x":[7]}`), Options{}, []Field{{Name: "x", Shape: []int{1}}}, []Sample{{floats([]int{1}, 7)}}, nil},
	} {
		c.o.Format, c.o.Files = "jsonl", []string{write(t, "a.jsonl", c.text)}
		d, err := Open(c.o)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if !reflect.DeepEqual(d.Fields(), c.fields) {
			t.Errorf("%s: fields %v, want %v", c.name, d.Fields(), c.fields)
		}
		if got := all(t, d); !equalSamples(got, c.want) {
			t.Errorf("%s: samples %v, want %v", c.name, got, c.want)
		}
		if !slices.Equal(ClassNames(d), c.classes) {
			t.Errorf("%s: classes %v", c.name, ClassNames(d))
		}
	}
}

func TestJSONLErrors(t *testing.T) {
	label := Options{Label: "y"}
	for _, c := range []struct {
		name, text string
		o          Options
		is         error
		want       string
	}{
		{"empty", "\n \n", label, data.ErrEmpty, `no data: a.jsonl has no line`},
		{"cut", `{"x":1,"y":2}` + "\n" + `{"x":1,"y`, label, ErrFormat,
			"a.jsonl, line 2, byte 9: malformed data: not valid JSON: unexpected end of JSON input: fix the line, or get the file again if it is truncated"},
		{"an array", `[1,2]`, label, ErrFormat, "a.jsonl, line 1: malformed data: expected an object, found ["},
		{"two objects", `{"x":1,"y":2} {}`, label, ErrFormat,
			"a.jsonl, line 1, byte 15: malformed data: not valid JSON: invalid character '{' after top-level value: fix the line, or get the file again if it is truncated"},
		{"no key", `{"x":1}`, label, ErrFormat,
			`a.jsonl, line 1: malformed data: the key "y" is missing: add it, or choose other keys with data.features, data.label and data.targets`},
		{"twice", `{"x":1,"x":2}`, label, ErrFormat, `a.jsonl, line 1: malformed data: the key "x" appears twice`},
		{"ragged", `{"x":[[1,2],[3]],"y":2}`, label, ErrFormat,
			`a.jsonl, line 1, byte 13 ("x"): malformed data: an array of 1 elements is next to one of 2: arrays of the same depth must have the same length`},
		{"a number beside an array", `{"x":[[1,2],3],"y":2}`, label, ErrFormat,
			`a.jsonl, line 1, byte 13 ("x"): malformed data: a value is next to an array: all elements must have the same nesting`},
		{"an array beside a number", `{"x":[1,[3]],"y":2}`, label, ErrFormat,
			`a.jsonl, line 1, byte 9 ("x"): malformed data: an array is next to a value: all elements must have the same nesting`},
		{"no elements", `{"x":[],"y":2}`, label, ErrFormat, `a.jsonl, line 1, byte 6 ("x"): malformed data: an array has no elements`},
		{"deep", `{"x":[[[[[[1]]]]]],"y":2}`, label, ErrFormat,
			`a.jsonl, line 1, byte 11 ("x"): malformed data: arrays are nested more than 5 deep`},
		{"null", `{"x":[1,null],"y":2}`, label, ErrFormat,
			`a.jsonl, line 1, byte 9 ("x"): malformed data: found null, which is neither a number nor an array of numbers`},
		{"text", `{"x":[1,"2"],"y":2}`, label, ErrFormat,
			`a.jsonl, line 1, byte 9 ("x"): malformed data: found "2", which is not a finite number`},
		{"too large", `{"x":1e39,"y":2}`, label, ErrFormat,
			`a.jsonl, line 1, byte 6 ("x"): malformed data: found "1e39", which is too large for float32`},
		{"infinite", `{"x":1e999,"y":2}`, label, ErrFormat,
			`a.jsonl, line 1, byte 6 ("x"): malformed data: found "1e999", which is not a finite number`},
		{"another shape", `{"x":[1,2],"y":2}` + "\n" + `{"x":[1],"y":2}`, label, ErrShape,
			`a.jsonl, line 2, byte 6 ("x"): shapes do not match: the shape is [1], but earlier samples have [2]: fix it, or add the key to data.varying`},
		{"another depth", `{"x":[1,2]}` + "\n" + `{"x":[[1]]}`, Options{Varying: []string{"x"}}, ErrShape,
			`a.jsonl, line 2, byte 6 ("x"): shapes do not match: arrays are nested 2 deep, but 1 deep in earlier samples: their lengths may differ, their nesting may not`},
		{"no id", `{"x":[1.5]}`, Options{IDs: []string{"x"}}, ErrFormat,
			`a.jsonl, line 1, byte 7 ("x"): malformed data: found "1.5", but ids must be 32-bit integers: fix it, or remove the key from data.ids`},
		{"a large id", `{"x":[3000000000]}`, Options{IDs: []string{"x"}}, ErrFormat,
			`a.jsonl, line 1, byte 7 ("x"): malformed data: found "3000000000", but ids must be 32-bit integers: fix it, or remove the key from data.ids`},
		{"label", `{"x":1,"y":10}`, Options{Label: "y", Classes: 10}, ErrLabel,
			`a.jsonl, line 1, byte 12 ("y"): label outside the classes: found 10, but the 10 classes are numbered 0 to 9: fix it, or set data.classes`},
		{"not UTF-8", "{\"x\":1,\"y\":\"\xff\"}", label, ErrFormat,
			"a.jsonl, line 1: malformed data: the JSON is not valid UTF-8: fix the line, or get the file again if it is truncated"},
	} {
		c.o.Format, c.o.Files = "jsonl", []string{write(t, "a.jsonl", c.text)}
		_, err := Open(c.o)
		if got := place(err, c.o.Files[0]); got != c.want || !errors.Is(err, c.is) {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

// Wherever a file is cut, it is refused, or has fewer lines.
func TestJSONLTruncated(t *testing.T) {
	const text = `{"x":[1,2],"y":3}` + "\n" + `{"x":[1,2],"y":3}` + "\n"
	const line = len(text) / 2
	for n := range len(text) {
		_, err := Open(Options{Format: "jsonl", Label: "y", Files: []string{write(t, "a", text[:n])}})
		if whole := n >= line-1 && n <= line || n == len(text)-1; whole != (err == nil) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

func TestJSONLLongLine(t *testing.T) {
	path := write(t, "a.jsonl", `{"x":1}`+"\n"+`{"x":[`+strings.Repeat("1,", 5000))
	_, err := openJSONLUpTo(Options{Files: []string{path}}, 9999)
	if want := "a.jsonl, line 2: malformed data: the line has more than 9999 bytes: write one object on each line"; place(err, path) != want {
		t.Errorf("got %v", err)
	}
}

func FuzzJSONL(f *testing.F) {
	for _, text := range []string{`{"x":[[1,2],[3,4]],"y":3}`, `{"x":1,"y":"a"}` + "\n" + `{"x":1,"y":"\"b\\"}`, `{"x":[[],[]]}`,
		`{"y":[1,[2]],"x":-0}`, `{"x": [ "\ud800" ] }`, `{"x":[1]}` + "\n" + `{"x":[1,2]}`} {
		f.Add([]byte(text), "y", true)
		f.Add([]byte(text), "", false)
	}
	f.Fuzz(func(t *testing.T, text []byte, label string, varying bool) {
		o := Options{Format: "jsonl", Label: label, Files: []string{write(t, "a", string(text))}}
		if varying {
			o.Varying = []string{"x"}
		}
		sound(t, o)
	})
}
