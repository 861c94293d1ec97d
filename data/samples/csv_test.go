package samples

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/internal/data"
	"github.com/troupe-ml/troupe/tensorops"
)

func TestCSV(t *testing.T) {
	x2 := Field{Name: "x", DType: tensorops.Float32, Shape: []int{2}}
	y := func(classes int) Field { return Field{Name: "y", DType: tensorops.Int32, Classes: classes} }
	row := func(a, b float32, label int32) Sample { return Sample{floats([]int{2}, a, b), ints([]int{}, label)} }
	for _, c := range []struct {
		name, text string
		o          Options
		fields     []Field
		want       []Sample
		classes    []string
	}{
		{"label by name", "a,b,label\n1,2,0\n 3 , -4.5e1 ,2\n", Options{Header: true, Label: "label"}, []Field{x2, y(3)},
			[]Sample{row(1, 2, 0), row(3, -45, 2)}, nil},
		{"no header", "0,1,2\r\n2.0,3,4", Options{Label: "1"}, []Field{x2, y(3)}, []Sample{row(1, 2, 0), row(3, 4, 2)}, nil},
		{"scale and classes", "a,b,c\n16,8,1\n", Options{Header: true, Label: "c", Scale: 1.0 / 16, Classes: 10}, []Field{x2, y(10)},
			[]Sample{row(1, 0.5, 1)}, nil},
		{"names", "a,b,c\n1,1,pear\n2,2,apple\n3,3,pear\n", Options{Header: true, Label: "c"}, []Field{x2, y(2)},
			[]Sample{row(1, 1, 1), row(2, 2, 0), row(3, 3, 1)}, []string{"apple", "pear"}},
		{"given names", "a,b,c\n1,1,pear\n2,2,2\n", Options{Header: true, Label: "c", ClassNames: []string{"pear", "2", "fig"}},
			[]Field{x2, y(3)}, []Sample{row(1, 1, 0), row(2, 2, 1)}, []string{"pear", "2", "fig"}},
		{"chosen features", "a,b,text,c\n1,2,hello,0\n", Options{Header: true, Label: "c", Features: []string{"b", "a"}}, []Field{x2, y(1)},
			[]Sample{row(2, 1, 0)}, nil},
		{"targets", "a,b,c\n1,2,30\n", Options{Header: true, Targets: []string{"c"}, Scale: 2, LabelField: "price"},
			[]Field{x2, {Name: "price", DType: tensorops.Float32, Shape: []int{1}}}, []Sample{{floats([]int{2}, 2, 4), floats([]int{1}, 30)}}, nil},
		{"no label", "1,2\n", Options{}, []Field{x2}, []Sample{{floats([]int{2}, 1, 2)}}, nil},
		{"semicolons, quotes, a mark and blank lines", "\ufeffa;\"b;\"\"\";c\n\n\"1\";\"2\n\";0\n\n",
			Options{Header: true, Label: "c", Separator: ";"}, []Field{x2, y(1)}, []Sample{row(1, 2, 0)}, nil},
		{"compressed", zipped(t, "1,2,1\n"), Options{Label: "3"}, []Field{x2, y(2)}, []Sample{row(1, 2, 1)}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.Format, c.o.Files = "csv", []string{write(t, "a.csv", c.text)}
			d, err := Open(c.o)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(d.Fields(), c.fields) {
				t.Errorf("fields %v, want %v", d.Fields(), c.fields)
			}
			if got := all(t, d); !equalSamples(got, c.want) {
				t.Errorf("samples %v, want %v", got, c.want)
			}
			if !slices.Equal(ClassNames(d), c.classes) {
				t.Errorf("classes %v, want %v", ClassNames(d), c.classes)
			}
		})
	}
}

// equalSamples treats no dimensions and nil alike.
func equalSamples(a, b []Sample) bool { return fmt.Sprint(a) == fmt.Sprint(b) }

func TestCSVErrors(t *testing.T) {
	labelled := Options{Header: true, Label: "c"}
	for _, c := range []struct {
		name, text string
		o          Options
		is         error
		want       string
	}{
		{"empty", "", labelled, data.ErrEmpty, `no data: a.csv has no row`},
		{"header alone", "a,c\n", labelled, data.ErrEmpty, `no data: a.csv has no row after its header`},
		{"short row", "a,b,c\n1,2,3\n1,2", labelled, ErrFormat,
			"a.csv, line 3: malformed data: the row has 2 columns, but the first row has 3: the file is truncated there, or a cell contains a separator and has no quotes"},
		{"text", "a,b,c\n1,2,3\n\n1,big,3\n", labelled, ErrFormat,
			`a.csv, line 4, column 2 ("b"): malformed data: found "big", which is not a finite number: fix the row, or leave the column out of data.features`},
		{"a header nobody has told of", "a,b\n1,2\n", Options{Label: "2"}, ErrFormat,
			`a.csv, line 1, column 1: malformed data: found "a", which is not a finite number: set data.header = true if the first row names the columns, or choose columns by data.features`},
		{"empty cell", "a,c\n,0\n", labelled, ErrFormat,
			`a.csv, line 2, column 1 ("a"): malformed data: the cell is empty, want a number: fix the row, or leave the column out of data.features`},
		{"not a number", "a,c\nNaN,0\n", labelled, ErrFormat,
			`a.csv, line 2, column 1 ("a"): malformed data: found "NaN", which is not a finite number: fix the row, or leave the column out of data.features`},
		{"too large", "a,c\n1e39,0\n", labelled, ErrFormat,
			`a.csv, line 2, column 1 ("a"): malformed data: found "1e39", which is too large for float32: fix the row, or leave the column out of data.features`},
		{"target", "a,c\n1,?\n", Options{Header: true, Targets: []string{"c"}}, ErrFormat,
			`a.csv, line 2, column 2 ("c"): malformed data: found "?", which is not a finite number`},
		{"label too large", "a,c\n1,9\n1,10\n", Options{Header: true, Label: "c", Classes: 10}, ErrLabel,
			`a.csv, line 3, column 2 ("c"): label outside the classes: found 10, but the 10 classes are numbered 0 to 9: fix it, or set data.classes`},
		{"label far too large", "a,c\n1,99999999\n", labelled, ErrLabel,
			`a.csv, line 2, column 2 ("c"): label outside the classes: found 99999999, but the limit is 16777216 classes`},
		{"label below 0", "a,c\n1,-1\n", labelled, ErrLabel,
			`a.csv, line 2, column 2 ("c"): label outside the classes: found -1, but classes are numbered from 0: renumber them, or use names`},
		{"label a fraction", "a,c\n1,0.5\n", labelled, ErrLabel,
			`a.csv, line 2, column 2 ("c"): label outside the classes: found "0.5", but labels must be integers from 0 or names: to predict numbers, set data.targets instead of data.label`},
		{"no label", "a,c\n1, \n", labelled, ErrLabel, `a.csv, line 2, column 2 ("c"): label outside the classes: the label is missing`},
		{"a name among numbers", "a,c\n1,3\n1,3x\n", labelled, ErrLabel,
			`a.csv, line 3, column 2 ("c"): label outside the classes: the label "3x" is a name, but line 2 of a.csv has the number "3": labels must be all numbers or all names. Fix the line, or list all names in data.class_names`},
		{"a number among names", "a,c\n1,x\n1,3\n", labelled, ErrLabel,
			`a.csv, line 3, column 2 ("c"): label outside the classes: the label "3" is a number, but line 2 of a.csv has the name "x": labels must be all numbers or all names. Fix the line, or list all names in data.class_names`},
		{"too many names", "a,c\n1,x\n1,y\n1,z\n", Options{Header: true, Label: "c", Classes: 2}, ErrLabel,
			`a.csv, line 4, column 2 ("c"): label outside the classes: the name "z" exceeds the limit of 2 classes, which are "x", "y": fix it, or set data.classes; to predict numbers, set data.targets instead of data.label`},
		{"another name", "a,c\n1,z\n", Options{Header: true, Label: "c", ClassNames: []string{"x", "y"}}, ErrLabel,
			`a.csv, line 2, column 2 ("c"): label outside the classes: found "z", which is not one of the 2 classes "x", "y"`},
		{"unknown column", "a,b\n1,2\n", labelled, ErrOptions,
			`a.csv, line 1: wrong data options: data.label names the column "c", which does not exist: the columns are "a", "b"`},
		{"unknown number", "1,2\n", Options{Label: "3"}, ErrOptions,
			`a.csv, line 1: wrong data options: data.label names the column "3", which does not exist: without data.header the columns are numbered from 1 to 2`},
		{"one column", "a;c\n1;2\n", Options{Header: true, Label: "a;c"}, ErrFormat,
			`a.csv, line 1: malformed data: the only column is "a;c": check data.separator`},
		{"twice", "a,b,a\n1,2,3\n", labelled, ErrFormat,
			`a.csv, line 1: malformed data: columns 1 and 3 are both named "a": rename one, or set data.header = false if the row is not a header`},
		{"open quote", "a,c\n1,\"2\n3,4\n", labelled, ErrFormat,
			`a.csv, line 3, byte 5: malformed data: extraneous or missing " in quoted-field: its row starts in line 2; fix the line, or get the file again if it is truncated`},
		{"bare quote", "a,c\n1,2\"\n", labelled, ErrFormat,
			`a.csv, line 2, byte 4: malformed data: bare " in non-quoted-field: fix the line, or get the file again if it is truncated`},
		{"cut archive", zipped(t, strings.Repeat("1,2\n", 100))[:30], Options{}, ErrFormat,
			"malformed data: decompressing a.csv: unexpected EOF: the file is truncated or damaged; get it again"},
		{"separator", "a,b\n", Options{Separator: ", "}, ErrOptions,
			`wrong data options: data.separator is ", ": it must be one character, such as ";" or a tab`},
	} {
		c.o.Format, c.o.Files = "csv", []string{write(t, "a.csv", c.text)}
		_, err := Open(c.o)
		if got := place(err, c.o.Files[0]); got != c.want || !errors.Is(err, c.is) {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

// A file that is cut is refused, or has fewer rows, but where the cut leaves a shorter number.
func TestCSVTruncated(t *testing.T) {
	const text = "a,b,label\n1,2,0\n3,4,1\n"
	for n := range len(text) {
		d, err := Open(Options{Format: "csv", Header: true, Label: "label", Classes: 2, Files: []string{write(t, "a.csv", text[:n])}})
		whole := n >= len("a,b,label\n1,2,0") && n <= len("a,b,label\n1,2,0\n") || n == len(text)-1
		if whole != (err == nil) {
			t.Errorf("%d bytes: %v, %v", n, d, err)
		}
	}
}

// A quote that nothing closes does not take in a whole file.
func TestCSVLongRow(t *testing.T) {
	path := write(t, "a.csv", "a,b\n1,2\n\""+strings.Repeat("1,2\n", 5000))
	_, err := openCSVUpTo(Options{Header: true, Files: []string{path}}, 9999)
	if want := "a.csv, line 3: malformed data: the row has more than 9999 bytes: check for an unclosed quote, and whether the file is CSV"; place(err,
		path) != want {
		t.Errorf("got %v", err)
	}
}

// Several files: columns go by their names.
func TestCSVFiles(t *testing.T) {
	a, b := write(t, "a.csv", "a,b,c\n1,2,x\n"), write(t, "b.csv", "c,b,a\ny,20,10\n")
	d, err := Open(Options{Format: "csv", Header: true, Label: "c", Files: []string{a, b}})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(all(t, d)[1]); got != fmt.Sprint(Sample{floats([]int{2}, 10, 20), ints([]int{}, 1)}) {
		t.Errorf("got %v", got)
	}
	extra := write(t, "extra.csv", "a,b,c,d\n1,2,x,3\n")
	if _, err := Open(Options{Format: "csv", Header: true, Label: "c", Files: []string{a, extra}}); !errors.Is(err, ErrFormat) ||
		!strings.Contains(err.Error(), `column 4 is named "d", but the first file`) {
		t.Errorf("another column: %v", err)
	}
	if _, err := Open(Options{Format: "csv", Header: true, Label: "c", Features: []string{"a"}, Files: []string{a, extra}}); err != nil {
		t.Errorf("another column that nobody chose: %v", err)
	}
}

func TestDigits(t *testing.T) {
	d, err := OpenRun(Options{Format: "csv", Header: true, Label: "label", Scale: 1.0 / 16,
		Files: []string{"../../examples/digits/digits-train.csv"}, Val: []string{"../../examples/digits/digits-test.csv"}})
	if err != nil {
		t.Fatal(err)
	}
	if d.Train.Len() != 1437 || d.Val.Len() != 360 || d.Train.Fields()[1].Classes != 10 || d.Val.Fields()[0].Shape[0] != 64 {
		t.Errorf("%d and %d samples of %v", d.Train.Len(), d.Val.Len(), d.Val.Fields())
	}
	for i := range d.Train.Len() {
		s, err := At(d.Train, i)
		if err != nil {
			t.Fatal(err)
		}
		if m := slices.Max(s[0].Float); m > 1 || m < 0.5 {
			t.Errorf("sample %d has pixels up to %g", i, m)
		}
	}
}

func FuzzCSV(f *testing.F) {
	for _, text := range []string{"a,b,c\n1,2,3\n", "a,c\n\"1\",x\n", "\ufeffa;c\r\n1;2", "a,c\n1,-1\n", "c,c\n", "\"",
		zipped(f, "a,c\n1,2\n"), "\x1f\x8b\x08"} {
		f.Add([]byte(text), "c", true, ",")
		f.Add([]byte(text), "1", false, ";")
		f.Add([]byte(text), "1", true, "\x00")
	}
	f.Fuzz(func(t *testing.T, text []byte, label string, header bool, separator string) {
		sound(t, Options{Format: "csv", Header: header, Label: label, Separator: separator, Files: []string{write(t, "a.csv", string(text))}})
	})
}

// sound: a file is refused by one of the package's errors, or its samples are what its fields say.
func sound(t *testing.T, o Options) {
	d, err := Open(o)
	if err != nil {
		for _, is := range []error{ErrOptions, ErrFormat, ErrLabel, ErrShape, data.ErrEmpty} {
			if errors.Is(err, is) {
				return
			}
		}
		t.Fatalf("an error of no kind: %v", err)
	}
	if d.Len() < 1 {
		t.Fatal("no samples")
	}
	if err := CheckFields(d.Fields()); err != nil {
		t.Fatal(err)
	}
	all(t, d)
	if _, err := Identity(d); err != nil {
		t.Fatal(err)
	}
}
