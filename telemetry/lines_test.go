package telemetry

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/troupe-ml/troupe/internal/host/folder"
)

// Each kind of file, with values that have every key.
var (
	someMarks = []Mark{
		{TimeMS: 1764000000000, Step: 0, Kind: MarkStart},
		{TimeMS: 1764000001000, Step: 12, Kind: MarkStall, Text: "no progress for 60.0 s\nroot: stage 1, waiting"},
		{TimeMS: 1764000002000, Step: 20, Kind: MarkEnd, Text: `it failed: "<disk>" is full & done`},
	}
	someStats = []Stats{
		{Step: 100, MemBytes: []int64{1 << 20, 0}, Layers: []LayerStats{
			{Name: "embed", Params: 1024, WeightNorm: p(2.5), GradNorm: p(0.125)},
			{Name: "0", Stage: 1, Params: 4096, WeightNorm: p(1e10), GradNorm: p(math.NaN())},
			{Name: "dropout", Stage: 1},
			{Name: "head", Stage: 1, Params: 7, WeightNorm: p(0)},
		}},
		{Step: 200, Layers: nil},
	}
	someSamples = []Sample{{Step: 0, Prompt: "Once", Text: " upon\n<script>alert(1)</script>\u2028"}, {Step: 250, Text: "ß"}}
)

func sameStats(a, b Stats) bool {
	return a.Step == b.Step && slices.Equal(a.MemBytes, b.MemBytes) && slices.EqualFunc(a.Layers, b.Layers, func(a, b LayerStats) bool {
		return a.Name == b.Name && a.Stage == b.Stage && a.Params == b.Params && sameFigure(a.WeightNorm, b.WeightNorm) &&
			sameFigure(a.GradNorm, b.GradNorm)
	})
}

func sameValue[T comparable](a, b T) bool { return a == b }

// writeLines writes values to a file that may be there.
func writeLines[T any](t testing.TB, path string, open func(folder.FS, string, int) (*LineWriter[T], error), cutToStep int,
	values ...T) error {
	t.Helper()
	fsys, err := folder.Open(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	defer fsys.Close() //nolint:errcheck // nothing is written by it
	w, err := open(fsys, filepath.Base(path), cutToStep)
	if err != nil {
		return err
	}
	for _, v := range values {
		if err := w.Write(v); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return nil
}

func checkGolden[T any](t *testing.T, name string, open func(folder.FS, string, int) (*LineWriter[T], error),
	read func(string) ([]T, error), same func(a, b T) bool, values []T, step func(T) int) {
	t.Helper()
	path, golden := filepath.Join(t.TempDir(), name), filepath.Join("testdata", name)
	if err := writeLines(t, path, open, -1); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("%s was made without a line: %v", name, err)
	}
	if err := writeLines(t, path, open, -1, values...); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(golden, []byte(content(t, path)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := content(t, path), content(t, golden); got != want {
		t.Errorf("written:\n%swant:\n%s", got, want)
	}
	back, err := read(golden)
	if err != nil || !slices.EqualFunc(back, values, same) {
		t.Errorf("%s reads as %+v, %v", golden, back, err)
	}
	// A run that goes back writes on behind the step that it goes on from, also after half a line.
	first := step(values[0])
	if err := os.WriteFile(path, append([]byte(content(t, golden)), `{"step":`...), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := writeLines(t, path, open, first, values[1]); err != nil {
		t.Fatal(err)
	}
	if back, err := read(path); err != nil || !slices.EqualFunc(back, values[:2], same) {
		t.Errorf("%s cut to %d reads as %+v, %v", name, first, back, err)
	}
}

func TestGoldenLines(t *testing.T) {
	checkGolden(t, "events.jsonl", OpenMarks, ReadMarks, sameValue, someMarks, func(m Mark) int { return m.Step })
	checkGolden(t, "stats.jsonl", OpenStats, ReadStats, sameStats, someStats, func(s Stats) int { return s.Step })
	checkGolden(t, "samples.jsonl", OpenSamples, ReadSamples, sameValue, someSamples, func(s Sample) int { return s.Step })
}

// TestLongLines: texts of any length are cut to whole characters, so that every line can be read.
func TestLongLines(t *testing.T) {
	dir := t.TempDir()
	worst := strings.Repeat("\x01", maxSampleText) + "end"
	if err := writeLines(t, filepath.Join(dir, "e"), OpenMarks, 0, Mark{Kind: MarkWarning, Text: worst},
		Mark{Kind: MarkWarning, Text: strings.Repeat("ß", maxMarkText)}); err != nil {
		t.Fatal(err)
	}
	m, err := ReadMarks(filepath.Join(dir, "e"))
	if err != nil || len(m) != 2 || len(m[0].Text) > maxMarkText || !strings.HasSuffix(m[1].Text, "ß…") {
		t.Errorf("%d marks, %v", len(m), err)
	}
	if err := writeLines(t, filepath.Join(dir, "s"), OpenSamples, 0, Sample{Prompt: worst, Text: worst},
		Sample{Text: "a\xff\xffb"}); err != nil {
		t.Fatal(err)
	}
	s, err := ReadSamples(filepath.Join(dir, "s"))
	if err != nil || len(s) != 2 || len(s[0].Text) > maxSampleText || s[1].Text != "a\uFFFD\uFFFDb" {
		t.Errorf("%d samples, %v", len(s), err)
	}
	if err := os.WriteFile(filepath.Join(dir, "long"), []byte(`{"step":1,"kind":"`+strings.Repeat("x", maxMarkBytes)+`"}`+"\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadMarks(filepath.Join(dir, "long")); err == nil || !strings.Contains(err.Error(), "row 1 is longer than") {
		t.Errorf("a line that is too long: %v", err)
	}
}

func TestBadLines(t *testing.T) {
	for text, says := range map[string]string{
		`{"kind":"start"}`:               `"step" is missing`,
		`{"step":-2,"kind":"start"}`:     "-2",
		`{"step":1}`:                     `"kind" is missing`,
		`{"step":1,"kind":5}`:            "number",
		`{"step":1.5,"kind":"warning"}`:  "1.5",
		`null`:                           `"step" is missing`,
		`[]`:                             "array",
		`{"step":1,"kind":"x","text":{}`: "end of JSON",
	} {
		var m Mark
		if err := m.UnmarshalJSON([]byte(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v does not say %q", text, err, says)
		}
	}
	var m Mark
	if err := json.Unmarshal([]byte(`{"step":3,"kind":"later","more":[1]}`), &m); err != nil ||
		!reflect.DeepEqual(m, Mark{Step: 3, Kind: "later"}) {
		t.Errorf("of a later version: %+v, %v", m, err)
	}
	var s Stats
	if err := s.UnmarshalJSON([]byte(`{"layers":[]}`)); err == nil {
		t.Error("stats of no step")
	}
	var x Sample
	if err := x.UnmarshalJSON([]byte(`{"text":"a"}`)); err == nil {
		t.Error("a sample of no step")
	}
}

func TestLinesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := func(name string) *float64 { return rapid.Ptr(rapid.OneOf(bits(), rapid.Float64()), true).Draw(t, name) }
		s := Stats{Step: rapid.IntMin(0).Draw(t, "step"), MemBytes: rapid.SliceOfN(rapid.Int64(), 1, 4).Draw(t, "mem")}
		for range rapid.IntRange(0, 4).Draw(t, "layers") {
			s.Layers = append(s.Layers, LayerStats{rapid.String().Draw(t, "name"), rapid.Int().Draw(t, "stage"), rapid.Int64().Draw(t, "params"),
				f("w"), f("g")})
		}
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var back Stats
		if err := json.Unmarshal(text, &back); err != nil || !sameStats(s, back) {
			t.Fatalf("%s reads as %+v, was %+v: %v", text, back, s, err)
		}
		m := Mark{TimeMS: rapid.Int64().Draw(t, "time"), Step: s.Step, Kind: rapid.StringMatching(`[a-z]+`).Draw(t, "kind"),
			Text: rapid.String().Draw(t, "text")}
		if text, err = json.Marshal(m); err != nil {
			t.Fatal(err)
		}
		var mark Mark
		if err := json.Unmarshal(text, &mark); err != nil || mark != m {
			t.Fatalf("%s reads as %+v, was %+v: %v", text, mark, m, err)
		}
	})
}

// fuzzLines holds reader and writer of a kind against each other: what one accepts so does the other, and
// what is written behind anything is read again.
func fuzzLines[T any](f *testing.F, name string, open func(folder.FS, string, int) (*LineWriter[T], error), read func(string) ([]T, error),
	step func(T) int, next T) {
	golden, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(golden, 2)
	f.Add([]byte("{\"step\":1,\"kind\":\"end\"}\n{\"step\":2"), 1)
	f.Add([]byte("{\"step\":1,\"layers\":[{}],\"mem_bytes\":[-1]}\r\n"), 0)
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte, cutToStep int) {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		before, readErr := read(path)
		err := writeLines(t, path, open, cutToStep, next)
		if (readErr != nil) != (err != nil) {
			t.Fatalf("reading says %v, writing %v", readErr, err)
		}
		if err != nil {
			return
		}
		want := 1
		for _, v := range before {
			if step(v) <= cutToStep {
				want++
			}
		}
		if after, err := read(path); err != nil || len(after) != want {
			t.Fatalf("after the cut to %d: %d lines, %v, want %d", cutToStep, len(after), err, want)
		}
	})
}

func FuzzReadMarks(f *testing.F) {
	fuzzLines(f, "events.jsonl", OpenMarks, ReadMarks, func(m Mark) int { return m.Step }, someMarks[1])
}

func FuzzReadStats(f *testing.F) {
	fuzzLines(f, "stats.jsonl", OpenStats, ReadStats, func(s Stats) int { return s.Step }, someStats[0])
}

func FuzzReadSamples(f *testing.F) {
	fuzzLines(f, "samples.jsonl", OpenSamples, ReadSamples, func(s Sample) int { return s.Step }, someSamples[0])
}
