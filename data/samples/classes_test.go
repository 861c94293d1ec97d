package samples

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestCountClasses: what is said of classes that hardly any sample, or none, has.
func TestCountClasses(t *testing.T) {
	csv := func(labels ...string) string {
		text := "a,label\n"
		for i, l := range labels {
			text += fmt.Sprintf("%d,%s\n", i, l)
		}
		file := filepath.Join(t.TempDir(), "data.csv")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	for _, tt := range []struct {
		name       string
		train, val []string
		says       string
		warnings   []string
	}{
		{"all there", []string{"0", "1", "1"}, []string{"0"}, "2 classes: 0 (1), 1 (2)", nil},
		{"names", []string{"no", "ja", "ja", "jaa"}, nil, `3 classes: "ja" (2), "jaa" (1), "no" (1)`, nil},
		{"holes", []string{"3", "10", "3"}, nil, "11 classes, 2 with training samples: 3 (2), 10 (1)",
			[]string{`9 of the 11 classes of "y" have no sample: 0, 1, 2, 4, 5, 6, 7, 8 and 1 more.`}},
		{"one that is mistyped", []string{"0", "1", "9"}, nil, "10 classes, 3 with training samples: 0 (1), 1 (1), 9 (1)",
			[]string{`7 of the 10 classes of "y" have no sample: 2, 3, 4, 5, 6, 7, 8.`}},
		{"one of validation alone", []string{"0", "1", "3"}, []string{"2", "2", "0"},
			"4 classes, 3 with training samples: 0 (1), 1 (1), 3 (1)",
			[]string{`1 of the 4 classes of "y" have validation samples (2) but no training samples: 2.`}},
		{"one class", []string{"0", "0"}, nil, "1 class: 0 (2)", []string{"the model has nothing to distinguish"}},
		{"one class and a hole", []string{"1", "1"}, nil, "2 classes, 1 with training samples: 1 (2)",
			[]string{"1 of the 2 classes", "the model has nothing to distinguish"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := Options{Format: "csv", Header: true, Files: []string{csv(tt.train...)}, Label: "label"}
			if tt.val != nil {
				o.Val = []string{csv(tt.val...)}
			}
			d, err := OpenRun(o)
			if err != nil {
				t.Fatal(err)
			}
			got := CountClasses(d)
			if len(got) != 1 || got[0].String() != tt.says {
				t.Fatalf("it says %v, want %q", got, tt.says)
			}
			warnings := got[0].Warnings()
			if len(warnings) != len(tt.warnings) {
				t.Fatalf("it warns %q, want %q", warnings, tt.warnings)
			}
			for i, want := range tt.warnings {
				if !strings.Contains(warnings[i], want) {
					t.Errorf("it warns %q, want %q", warnings, tt.warnings)
				}
			}
		})
	}
	// A split counts its own part, and other datasets are not read for it.
	d, err := OpenRun(Options{Format: "csv", Header: true, Files: []string{csv("0", "1", "1", "0", "1", "1")}, Label: "label",
		ValFraction: 0.5})
	if err != nil {
		t.Fatal(err)
	}
	c := CountClasses(d)[0]
	if c.Train[0]+c.Train[1] != 3 || c.Train[0]+c.Val[0] != 2 || c.Train[1]+c.Val[1] != 4 {
		t.Errorf("of a split: %+v", c)
	}
}

// TestLabelsNotUTF8: a name that a run's files can't keep is refused where it stands.
func TestLabelsNotUTF8(t *testing.T) {
	file := filepath.Join(t.TempDir(), "latin.csv")
	if err := os.WriteFile(file, []byte("a,label\n1,ja\n2,ja\n3,n\xf6\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Open(Options{Format: "csv", Header: true, Files: []string{file}, Label: "label"})
	at := new(PlaceError)
	if !errors.As(err, &at) || at.File != file || at.Line != 4 || at.Column != 2 ||
		!strings.Contains(err.Error(), `the label "n\xf6" is not UTF-8`) {
		t.Errorf("%v", err)
	}
	if checkNames([]string{"ja", "n\xf6"}) == nil || checkNames([]string{"ja", "nö"}) != nil {
		t.Error("names of a registered format's classes")
	}
	if err := CheckFields([]Field{{Name: "x\xff"}}); err == nil || !slices.Contains([]string{err.Error()},
		`wrong data options: the name of field 1, "x\xff", is not UTF-8`) {
		t.Errorf("%v", err)
	}
}
