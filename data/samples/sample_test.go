package samples

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/troupe-ml/troupe/internal/data"
	"github.com/troupe-ml/troupe/tensorops"
)

func TestCheckFields(t *testing.T) {
	for _, c := range []struct {
		name   string
		fields []Field
		is     error
		want   string
	}{
		{"good", []Field{{Name: "x", Shape: []int{-1, 3}}, {Name: "y", DType: tensorops.Int32, Classes: 2}}, nil, ""},
		{"none", nil, ErrOptions, "wrong data options: a sample has 0 fields: it must have from 1 to 64"},
		{"no name", []Field{{}}, ErrOptions, "wrong data options: field 1 of 1 has no name"},
		{"twice", []Field{{Name: "x"}, {Name: "x"}}, ErrOptions, `wrong data options: two fields have the name "x"`},
		{"type", []Field{{Name: "x", DType: 9}}, ErrOptions, `wrong data options: field "x" is dtype(9): fields must be float32 or int32`},
		{"rank", []Field{{Name: "x", Shape: make([]int, 6)}}, ErrShape, `shapes do not match: field "x" has 6 dimensions; the limit is 5`},
		{"dimension", []Field{{Name: "x", Shape: []int{2, 0}}}, ErrShape,
			`shapes do not match: dimension 1 of field "x" is 0: it must be from 1 to 2147483647, or -1 if it differs between samples`},
		{"classes", []Field{{Name: "x", DType: tensorops.Int32, Classes: -1}}, ErrOptions,
			`wrong data options: field "x" has -1 classes: it may have from 1 to 16777216, or 0 if it is not a label`},
		{"label's type", []Field{{Name: "x", Classes: 2}}, ErrOptions,
			`wrong data options: field "x" is a label of 2 classes, but of type float32: labels must be int32`},
	} {
		err := CheckFields(c.fields)
		if got := place(err, "-/-"); got != c.want || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

func TestAtErrors(t *testing.T) {
	fields := []Field{{Name: "x", Shape: []int{2}}, {Name: "y", DType: tensorops.Int32, Classes: 3}}
	x, y := floats([]int{2}, 1, 2), ints(nil, 2)
	for _, c := range []struct {
		name string
		s    Sample
		err  error
		is   error
		want string
	}{
		{"good", Sample{x, y}, nil, nil, ""},
		{"its own error", nil, data.ErrEmpty, data.ErrEmpty, "sample 0 of 1: no data"},
		{"a field too few", Sample{x}, nil, ErrShape, "sample 0 of 1: shapes do not match: the sample has 1 fields, want 2"},
		{"shape", Sample{floats([]int{3}, 1, 2, 3), y}, nil, ErrShape,
			`sample 0 of 1: shapes do not match: field "x" has the shape [3], want [2]`},
		{"numbers", Sample{floats([]int{2}, 1), y}, nil, tensorops.ErrShape, `sample 0 of 1: field "x": ` + tensorops.ErrShape.Error() +
			": there are 1 numbers, but the shape [2] has 2"},
		{"type", Sample{ints([]int{2}, 1, 2), y}, nil, ErrShape,
			`sample 0 of 1: shapes do not match: field "x" is of type int32, want float32`},
		{"label", Sample{x, ints(nil, 3)}, nil, ErrLabel,
			`sample 0 of 1: label outside the classes: field "y" has the label 3, but its 3 classes are numbered 0 to 2`},
		{"label below 0", Sample{x, ints(nil, -1)}, nil, ErrLabel,
			`sample 0 of 1: label outside the classes: field "y" has the label -1, but its 3 classes are numbered 0 to 2`},
	} {
		_, err := At(&made{fields, []Sample{c.s}, c.err}, 0)
		if got := place(err, "-/-"); got != c.want || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

func TestCollate(t *testing.T) {
	fields := []Field{{Name: "x", Shape: []int{-1, 2}}, {Name: "y", DType: tensorops.Int32, Classes: 3}, {Name: "z", DType: tensorops.Float64}}
	sample := func(x tensorops.Array, y int32) Sample {
		return Sample{x, ints(nil, y), {Double: []float64{float64(y)}}}
	}
	one, other := floats([]int{1, 2}, 1, 2), floats([]int{1, 2}, 3, 4)
	got, err := Collate(fields, []Sample{sample(one, 0), sample(other, 2)})
	if err != nil {
		t.Fatal(err)
	}
	want := Sample{floats([]int{2, 1, 2}, 1, 2, 3, 4), ints([]int{2}, 0, 2), {Shape: []int{2}, Double: []float64{0, 2}}}
	if !equalSamples([]Sample{got}, []Sample{want}) {
		t.Errorf("got %v, want %v", got, want)
	}
	for i := range got {
		if err := got[i].Check(); err != nil {
			t.Error(err)
		}
	}
	_, err = Collate(fields, []Sample{sample(one, 0), sample(floats([]int{2, 2}, 1, 2, 3, 4), 0)})
	if want := `shapes do not match: in a microbatch of 2 samples, field "x" has the shape [1 2] in sample 0 and [2 2] in sample 1: set batch.microbatch = 1, or implement Batch on the dataset to pad them`; place(err, "-/-") != want || !errors.Is(err, ErrShape) {
		t.Errorf("other shapes: %v", err)
	}
	if _, err := Collate(fields, nil); !errors.Is(err, ErrShape) {
		t.Errorf("no samples: %v", err)
	}
	if _, err := Collate(fields, []Sample{{one}}); err == nil || !strings.HasPrefix(err.Error(), "sample 0 of a microbatch of 1: ") {
		t.Errorf("a field too few: %v", err)
	}
}

// padding makes microbatches itself.
type padding struct {
	*made
	batch []tensorops.Array
	err   error
}

func (p *padding) Batch([]Sample) ([]tensorops.Array, error) { return p.batch, p.err }

func TestBatch(t *testing.T) {
	m := counting(4)
	p := &padding{made: m, batch: []tensorops.Array{floats([]int{2, 3}, 1, 2, 3, 4, 5, 6)}}
	part, _, err := Split(p, 0.5, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []Dataset{p, part} { // a part of a Batcher is one
		if got, err := Batch(d, m.samples[:2]); err != nil || got[0].Shape[1] != 3 {
			t.Errorf("got %v, %v", got, err)
		}
	}
	if got, err := Batch(m, m.samples[:2]); err != nil || !slices.Equal(got[0].Shape, []int{2, 1}) {
		t.Errorf("got %v, %v", got, err)
	}
	for name, c := range map[string]struct {
		batch []tensorops.Array
		err   error
		want  string
	}{
		"own error": {nil, data.ErrTooShort, "a microbatch of 2 samples: too little data"},
		"none":      {nil, nil, "shapes do not match: Batch returned 0 arrays for 1 fields"},
		"samples": {[]tensorops.Array{floats([]int{1, 3}, 1, 2, 3)}, nil,
			`shapes do not match: Batch returned an array of shape [1 3] and type float32 for field "x" of 2 samples, which is float32: the first dimension must be the number of samples`},
		"type": {[]tensorops.Array{ints([]int{2}, 1, 2)}, nil,
			`shapes do not match: Batch returned an array of shape [2] and type int32 for field "x" of 2 samples, which is float32: the first dimension must be the number of samples`},
		"too few values": {[]tensorops.Array{floats([]int{2}, 1)}, nil, `Batch, field "x": ` + tensorops.ErrShape.Error() +
			": there are 1 numbers, but the shape [2] has 2"},
	} {
		p.batch, p.err = c.batch, c.err
		if _, err := Batch(p, m.samples[:2]); place(err, "-/-") != c.want {
			t.Errorf("%s:\n got %v\nwant %s", name, err, c.want)
		}
	}
}

// TestOrder: each sample comes once an epoch, and the order is the seed's and the epoch's.
func TestOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(1, 500).Draw(t, "n")
		o := NewOrder(rapid.Uint64().Draw(t, "seed"), n)
		number := rapid.OneOf(rapid.Int64Range(0, 10), rapid.Int64Range(0, 1<<50)).Draw(t, "epoch")
		seen := make([]bool, n)
		for i := range n {
			epoch, index := o.Sample(number*n + i)
			if epoch != number || index < 0 || index >= n || seen[index] {
				t.Fatalf("sample %d of epoch %d is %d of epoch %d, out of range or twice", i, number, index, epoch)
			}
			seen[index] = true
		}
	})
	// A run must go on with the same samples under a later version too.
	o := NewOrder(42, 1437)
	var got []int64
	for _, number := range []int64{0, 1, 1436, 1437, 1 << 40} {
		_, index := o.Sample(number)
		got = append(got, index)
	}
	if want := []int64{464, 572, 251, 1000, 106}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestSource(t *testing.T) {
	s, err := NewSource(counting(7), 3)
	if err != nil {
		t.Fatal(err)
	}
	var got []float32
	for number := range int64(14) {
		sample, err := s.Sample(number)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, sample[0].Float[0])
	}
	slices.Sort(got[:7])
	slices.Sort(got[7:])
	if want := []float32{0, 1, 2, 3, 4, 5, 6}; !slices.Equal(got[:7], want) || !slices.Equal(got[7:], want) {
		t.Errorf("two epochs: %v", got)
	}
	if _, err := s.Sample(-1); !errors.Is(err, ErrPosition) {
		t.Errorf("sample -1: %v", err)
	}
	broken := counting(1)
	broken.err = errors.New("the disk fails")
	s, err = NewSource(broken, 3)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sample(5); !errors.Is(err, broken.err) || err.Error() != "sample 5 of the run is sample 0 of 1: the disk fails" {
		t.Errorf("got %v", err)
	}
	if _, err := NewSource(counting(0), 3); !errors.Is(err, data.ErrEmpty) {
		t.Errorf("no samples: %v", err)
	}
}

// TestSplit: the parts are disjoint, in order and together the whole, and the same each time.
func TestSplit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, fraction, seed := rapid.IntRange(2, 300).Draw(t, "n"), rapid.Float64Range(0.01, 0.99).Draw(t, "fraction"),
			rapid.Uint64().Draw(t, "seed")
		d := counting(n)
		train, val, err := Split(d, fraction, seed)
		if err != nil {
			if cut := int(float64(n) * (1 - fraction)); !errors.Is(err, data.ErrTooShort) || cut > 0 && cut < n {
				t.Fatal(err)
			}
			return
		}
		again, _, _ := Split(d, fraction, seed)
		count := make([]int, n)
		for _, part := range []Dataset{train, val} {
			last := float32(-1)
			for i := range part.Len() {
				s, err := part.At(i)
				if err != nil {
					t.Fatal(err)
				}
				if s[0].Float[0] <= last {
					t.Fatal("not in order")
				}
				last = s[0].Float[0]
				count[int(last)]++
			}
		}
		if slices.Min(count) != 1 || slices.Max(count) != 1 {
			t.Fatalf("samples come %v times", count)
		}
		if !slices.Equal(train.(*subset).indices, again.(*subset).indices) {
			t.Fatal("another split")
		}
	})
	for _, fraction := range []float64{0, 1, -1, 2} {
		if _, _, err := Split(counting(10), fraction, 1); !errors.Is(err, ErrOptions) {
			t.Errorf("%g: %v", fraction, err)
		}
	}
}

func TestSubset(t *testing.T) {
	d, err := Subset(counting(5), []int{3, 3, 0})
	if err != nil {
		t.Fatal(err)
	}
	if got := all(t, d); d.Len() != 3 || got[1][0].Float[0] != 3 || got[2][0].Float[0] != 0 {
		t.Errorf("got %v", got)
	}
	if _, err := d.At(3); err == nil {
		t.Error("there is a fourth")
	}
	if _, err := Subset(counting(5), []int{0, 5}); place(err,
		"-/-") != "wrong data options: entry 1 of a subset is sample 5, but the dataset has 5 samples" {
		t.Errorf("got %v", err)
	}
}

// identified knows its identity.
type identified struct{ *made }

func (identified) Identity() data.Identity { return data.Identity{SHA256: "own"} }

func TestIdentity(t *testing.T) {
	of := func(d Dataset) data.Identity {
		id, err := Identity(d)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	base := of(counting(10))
	if base.Samples != 10 || base.Bytes != 40 || base.Sampled || base.Difference(of(counting(10))) != "" {
		t.Errorf("got %+v", base)
	}
	changed, named, shaped := counting(10), counting(10), counting(10)
	changed.samples[7][0] = floats([]int{1}, 7.5)
	named.fields[0].Name = "z"
	shaped.fields[0].Shape = []int{-1}
	shaped.samples[8][0] = floats([]int{2}, 8, 9)
	shaped.samples[9][0] = floats([]int{1}, 9)
	for name, d := range map[string]Dataset{"a value": changed, "a name": named, "a shape": shaped, "a sample more": counting(11)} {
		if of(d).SHA256 == base.SHA256 {
			t.Errorf("%s makes no difference", name)
		}
	}
	if got, want := base.Difference(of(counting(11))),
		"10 samples of 40 bytes in total before, 11 samples of 44 bytes in total now"; got != want {
		t.Errorf("got %s", got)
	}
	if of(identified{counting(3)}).SHA256 != "own" {
		t.Error("the dataset's own identity is not taken")
	}
	// The same samples of another format are the same data.
	csv, err := Open(Options{Format: "csv", Label: "3", Files: []string{write(t, "a", "1,2,0\n3,4,1\n")}})
	if err != nil {
		t.Fatal(err)
	}
	jsonl, err := Open(Options{Format: "jsonl", Label: "y", Files: []string{write(t, "a", `{"x":[1,2],"y":0}`+"\n"+`{"x":[3,4],"y":1}`)}})
	if err != nil {
		t.Fatal(err)
	}
	if of(csv).SHA256 != of(jsonl).SHA256 {
		t.Error("CSV and JSON of the same samples differ")
	}
	broken := counting(3)
	broken.err = errors.New("the disk fails")
	if _, err := Identity(broken); !errors.Is(err, broken.err) {
		t.Errorf("got %v", err)
	}
}

// Of much data some samples stand for the rest: which ones does not depend on it.
func TestSampledIdentity(t *testing.T) {
	const n = 1000
	id, err := identityUpTo(counting(n), 399, 10)
	if err != nil || !id.Sampled || id.Bytes != 40 || id.Samples != n {
		t.Errorf("got %+v, %v", id, err)
	}
	found := 0
	for i := range n {
		d := counting(n)
		d.samples[i] = Sample{floats([]int{1}, -1)}
		other, err := identityUpTo(d, 399, 10)
		if err != nil {
			t.Fatal(err)
		}
		if other.SHA256 != id.SHA256 {
			found++
		}
	}
	if found != 10 {
		t.Errorf("%d of %d changes are found, want 10", found, n)
	}
}
