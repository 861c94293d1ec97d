package samples

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/troupe-ml/troupe/internal/data"
	"github.com/troupe-ml/troupe/tensorops"
)

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		name string
		o    Options
		want string
	}{
		{"format", Options{Format: "parquet"}, `wrong data options: data.format is "parquet": it must be one of csv, idx, jsonl, memory, river`},
		{"no files", Options{Format: "csv"}, "wrong data options: there is no file to read: set data.train"},
		{"unused", Options{Format: "csv", Labels: []string{"a"}},
			`wrong data options: data.labels has no effect with data.format = "csv": remove it`},
		{"header", Options{Format: "jsonl", Header: true, Separator: ";"},
			`wrong data options: data.header has no effect with data.format = "jsonl": remove it`},
		{"label of IDX", Options{Format: "idx", Label: "y"}, `wrong data options: data.label has no effect with data.format = "idx": remove it`},
		{"label and targets", Options{Format: "csv", Label: "a", Targets: []string{"b", "c"}},
			`wrong data options: data.label = "a" is for classes, and data.targets = "b", "c" is for numbers to predict: set only one of them`},
		{"scale", Options{Format: "csv", Scale: math.Inf(1)}, "wrong data options: data.scale is +Inf: it must be a finite number"},
		{"classes", Options{Format: "csv", Classes: -1},
			"wrong data options: data.classes is -1: it must be from 1 to 16777216, or 0 to count them"},
		{"names", Options{Format: "csv", Classes: 1, ClassNames: []string{"a", "b"}},
			"wrong data options: data.class_names has 2 names, but data.classes is 1: make the numbers equal, at most 65536"},
		{"names twice", Options{Format: "csv", ClassNames: []string{"a", "a"}}, `wrong data options: data.class_names has "a" twice`},
		{"a feature twice", Options{Format: "csv", Features: []string{"a", "a"}},
			`wrong data options: "a" is in both data.features and data.features: remove it from one`},
		{"the label a feature", Options{Format: "csv", Label: "a", Features: []string{"a"}},
			`wrong data options: "a" is in both data.label and data.features: remove it from one`},
		{"ids", Options{Format: "jsonl", IDs: []string{"z"}},
			`wrong data options: "z" is in data.ids or data.varying, but neither a feature nor a target`},
		{"ids of a label", Options{Format: "jsonl", Label: "y", IDs: []string{"y"}},
			`wrong data options: "y" is data.label, which is always an id: remove it from data.ids`},
	} {
		if c.name != "no files" {
			c.o.Files = []string{"a"}
		}
		if _, err := Open(c.o); place(err, "-/-") != c.want || !errors.Is(err, ErrOptions) {
			t.Errorf("%s:\n got %v\nwant %s", c.name, err, c.want)
		}
	}
	folder := t.TempDir()
	if _, err := Open(Options{Format: "csv", Files: []string{folder}}); !errors.Is(err, ErrOptions) {
		t.Errorf("a folder: %v", err)
	}
	if _, err := Open(Options{Format: "csv", Files: []string{filepath.Join(folder, "none")}}); err == nil {
		t.Error("a file that is not there")
	}
}

// TestOpenRun: data to validate on has the columns and the ids of that to train on.
func TestOpenRun(t *testing.T) {
	train := write(t, "train.csv", "a,b,c\n1,2,pear\n3,4,apple\n5,6,fig\n7,8,fig\n")
	o := Options{Format: "csv", Header: true, Label: "c", Files: []string{train}}
	d, err := OpenRun(o)
	if err != nil || d.Val != nil || d.Train.Len() != 4 {
		t.Errorf("no validation: %v, %v", d, err)
	}

	o.Val = []string{write(t, "val.csv", "c,b,a\nfig,20,10\n")}
	if d, err = OpenRun(o); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(all(t, d.Val)), fmt.Sprint([]Sample{{floats([]int{2}, 10, 20), ints(nil, 1)}}); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	o.Classes = 5
	if d, err = OpenRun(o); err != nil || d.Val.Fields()[1].Classes != 5 {
		t.Errorf("more classes than names: %v", err)
	}
	o.Classes = 0

	o.Val = []string{write(t, "val.csv", "c,b,a\nplum,20,10\n")}
	if _, err := OpenRun(o); !errors.Is(err, ErrLabel) {
		t.Errorf("a class that is not trained on: %v", err)
	}
	o.Val = []string{train}
	o.ValFraction = 0.5
	if _, err := OpenRun(o); !errors.Is(err, ErrOptions) {
		t.Errorf("val and val_fraction: %v", err)
	}
	o.Val = nil
	if d, err = OpenRun(o); err != nil || d.Train.Len() != 2 || d.Val.Len() != 2 ||
		!slices.Equal(ClassNames(d.Val), []string{"apple", "fig", "pear"}) {
		t.Errorf("a part: %v, %v", d, err)
	}
	source, err := d.Source(1)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := source.Sample(100); err != nil || len(s) != len(source.Fields()) {
		t.Errorf("got %v, %v", s, err)
	}

	one := write(t, "one", `{"x":[1,2]}`)
	other := write(t, "other", `{"x":[1,2,3]}`)
	if _, err := OpenRun(Options{Format: "jsonl", Files: []string{one}, Val: []string{other}}); place(err,
		"-/-") != `shapes do not match: field 1 is "x" of float32 [2] in the training data, but "x" of float32 [3] in the validation data: use data of the same kind` {
		t.Errorf("another shape: %v", err)
	}
	if _, err := OpenRun(Options{Format: "jsonl", Files: []string{one}, Val: []string{other}, Varying: []string{"x"}}); err != nil {
		t.Errorf("another length: %v", err)
	}
	image, label := write(t, "image", idxOf(8, []uint32{1, 1}, uint8(1))), write(t, "label", idxOf(8, []uint32{1}, uint8(7)))
	if d, err := OpenRun(Options{Format: "idx", Files: []string{image}, Labels: []string{label}, Val: []string{image},
		ValLabels: []string{label}}); err != nil || d.Val.Fields()[1].Classes != 8 {
		t.Errorf("IDX: %v, %v", d, err)
	}
	if _, err := OpenRun(Options{Format: "idx", Files: []string{image}, Labels: []string{label}, Val: []string{image}}); !errors.Is(err,
		ErrShape) {
		t.Errorf("IDX without labels to validate on: %v", err)
	}
}

// registered are what the tests' formats open.
var registered struct {
	train, val Dataset
	stream     OpenStream
	seekable   bool
	err        error
}

func init() {
	Register("memory", func(Options) (train, val Dataset, err error) {
		return registered.train, registered.val, registered.err
	})
	RegisterStream("river", func(Options) (OpenStream, bool, Dataset, error) {
		return registered.stream, registered.seekable, registered.val, registered.err
	})
}

func TestRegister(t *testing.T) {
	if got := Formats(); !slices.Equal(got, []string{"csv", "idx", "jsonl", "memory", "river"}) {
		t.Errorf("formats %v", got)
	}
	registered.train, registered.val = counting(3), counting(2)
	if d, err := OpenRun(Options{Format: "memory"}); err != nil || d.Train.Len() != 3 || d.Val.Len() != 2 {
		t.Errorf("got %v, %v", d, err)
	}
	registered.val = &made{fields: []Field{{Name: "x", DType: tensorops.Int32}}}
	if _, err := OpenRun(Options{Format: "memory"}); !errors.Is(err, ErrShape) {
		t.Errorf("other fields: %v", err)
	}
	registered.val, registered.train = nil, nil
	if _, err := OpenRun(Options{Format: "memory"}); place(err,
		"-/-") != `data.format = "memory", which this program registered: wrong data options: it returned no training data` {
		t.Errorf("nothing: %v", err)
	}
	registered.err = data.ErrEmpty
	for _, name := range []string{"memory", "river"} {
		if _, err := OpenRun(Options{Format: name}); !errors.Is(err, data.ErrEmpty) {
			t.Errorf("its own error: %v", err)
		}
	}
	registered.err = nil

	open := 0
	registered.stream, registered.seekable = func(at int64) (Stream, error) { open++; return &river{at, 5, 0, &open}, nil }, true
	d, err := OpenRun(Options{Format: "river"})
	if err != nil || d.Train != nil || !d.Stream.Seekable() {
		t.Fatalf("got %v, %v", d, err)
	}
	source, err := d.Source(1)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := source.Sample(0); err != nil || s[0].Float[0] != 0 {
		t.Errorf("got %v, %v", s, err)
	}
	if err := d.Stream.Close(); err != nil || open != 0 {
		t.Errorf("%v, %d are open", err, open)
	}
	registered.val = &made{}
	if _, err := OpenRun(Options{Format: "river"}); !errors.Is(err, ErrOptions) || open != 0 {
		t.Errorf("wrong data to validate on: %v, %d streams are open", err, open)
	}
	registered.val, registered.stream = nil, nil
	if _, err := OpenRun(Options{Format: "river"}); !errors.Is(err, ErrOptions) {
		t.Errorf("no stream: %v", err)
	}

	nothing := func(Options) (train, val Dataset, err error) { return nil, nil, nil }
	for name, add := range map[string]func(){
		"taken": func() { Register("csv", nothing) },
		"text":  func() { Register("text", nothing) },
		"twice": func() {
			RegisterStream("memory", func(Options) (OpenStream, bool, Dataset, error) { return nil, false, nil, nil })
		},
		"name":     func() { Register("My Data", nothing) },
		"nil":      func() { Register("mine", nil) },
		"no river": func() { RegisterStream("mine", nil) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			add()
		}()
	}
}
