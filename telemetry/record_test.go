package telemetry

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func p(v float64) *float64 { return &v }

// sameFigure takes all that is null in the file for the same.
func sameFigure(a, b *float64) bool {
	if a == nil || b == nil {
		return a == b
	}
	null := func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) }
	return math.Float64bits(*a) == math.Float64bits(*b) || null(*a) && null(*b)
}

func sameRecord(a, b Record) bool {
	for i := range Figures {
		if f := &Figures[i]; f.whole == nil && !sameFigure(f.Get(&a), f.Get(&b)) || f.whole != nil && *f.whole(&a) != *f.whole(&b) {
			return false
		}
	}
	return a.Step == b.Step && a.Tokens == b.Tokens && a.Epoch == b.Epoch && a.TimeMS == b.TimeMS && a.Skipped == b.Skipped &&
		a.Update == b.Update
}

// bits are floats of any bit pattern.
func bits() *rapid.Generator[float64] {
	return rapid.Map(rapid.Uint64(), math.Float64frombits)
}

func anyRecord() *rapid.Generator[Record] {
	return rapid.Custom(func(t *rapid.T) Record {
		r := Record{
			Step: rapid.IntMin(0).Draw(t, "step"), Tokens: rapid.Int64().Draw(t, "tokens"), Skipped: rapid.Bool().Draw(t, "skipped"),
			Update: rapid.SampledFrom([]string{"", "kept", "rolled_back", "waited"}).Draw(t, "update"),
			Epoch:  rapid.Float64Range(0, 1e6).Draw(t, "epoch"), TimeMS: rapid.Int64().Draw(t, "time"),
		}
		for i := range Figures {
			if f := &Figures[i]; f.whole != nil {
				*f.whole(&r) = rapid.Int64().Draw(t, f.Name)
			} else {
				f.Set(&r, rapid.Ptr(rapid.OneOf(bits(), rapid.Float64()), true).Draw(t, f.Name))
			}
		}
		return r
	})
}

// TestFigures: the table's rows are complete, and each names a field of its own.
func TestFigures(t *testing.T) {
	var all Record
	for i := range Figures {
		f := &Figures[i]
		if f.Name == "" || f.Tag == "" || f.Title == "" || f.Line == "" || !strings.HasSuffix(f.Help, ".") || FigureOf(f.Name) != f {
			t.Errorf("%+v is incomplete", f)
		}
		if f.Chart != "" && (FigureOf(f.Chart) == nil || FigureOf(f.Chart).Unit != f.Unit || FigureOf(f.Chart).Chart != "") {
			t.Errorf("%s has no place in the chart of %q", f.Name, f.Chart)
		}
		if f.Get(&all) != nil {
			t.Errorf("%s has the field of another", f.Name)
		}
		f.Set(&all, p(float64(i+1)))
	}
	for i := range Figures {
		if v := Figures[i].Get(&all); v == nil || *v != float64(i+1) {
			t.Errorf("%s is %v, want %d", Figures[i].Name, v, i+1)
		}
	}
	if FigureOf("accuracy") != nil {
		t.Error("a metric of a model's own is a figure")
	}
}

func TestRecordRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := anyRecord().Draw(t, "record")
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var back Record
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatal(err)
		}
		if !sameRecord(r, back) {
			t.Fatalf("%s reads as %+v, was %+v", text, back, r)
		}
	})
}

func TestRecordErrors(t *testing.T) {
	for text, says := range map[string]string{
		`{}`:                            `"step" is missing`,
		`{"step": null}`:                `"step" is missing`,
		`null`:                          `"step" is missing`,
		`{"step": -1}`:                  "-1",
		`{"step": 1.5}`:                 "1.5",
		`{"step": 1, "loss": "low"}`:    "string",
		`{"step": 1, "loss": 1e999}`:    "1e999",
		`{"step": 1, "skipped": 1}`:     "skipped",
		`{"step": 1, "tokens": 1e30}`:   "tokens",
		`{"step": 1} {"step": 2}`:       "after top-level",
		`{"step": 1, "loss": [1, 2, 3]`: "end of JSON",
		`[1]`:                           "array",
	} {
		var r Record
		err := r.UnmarshalJSON([]byte(text))
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v does not say %q", text, err, says)
		}
	}
	var r Record
	if err := json.Unmarshal([]byte(`{"step": 3, "mfu_pct": 41, "note": {"a": []}}`), &r); err != nil ||
		!reflect.DeepEqual(r, Record{Step: 3}) {
		t.Errorf("with keys of a later version: %+v, %v", r, err)
	}
}
