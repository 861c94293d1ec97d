package telemetry

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/internal/host/folder"
)

func TestTraces(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "trace.jsonl")
	fsys, err := folder.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = fsys.Close() }()
	trace := func(step int, ms float64) Trace {
		return Trace{Step: step, Schedule: "1f1b", Table: "0F0,0B0\n", MS: [][][2]float64{{{0, ms}, {ms, 2 * ms}}}, ChunkFLOPs: []float64{1e9},
			Threads: 2}
	}
	for _, tr := range []Trace{trace(10, 1), trace(20, 2), trace(20, 3), trace(30, 4)} {
		if err := WriteTrace(fsys, "trace.jsonl", tr); err != nil {
			t.Fatal(err)
		}
	}
	check := func(step int, want Trace) {
		t.Helper()
		got, steps, err := ReadTrace(path, step)
		if err != nil || !reflect.DeepEqual(got, want) || !slices.Equal(steps, []int{10, 20, 30}) {
			t.Errorf("step %d reads as %+v of %v (%v), want %+v", step, got, steps, err, want)
		}
	}
	check(10, trace(10, 1))
	check(20, trace(20, 3)) // the later of two
	check(-1, trace(30, 4))

	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"step": 40, "ms": [[`); err != nil { // a crash
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	check(-1, trace(30, 4))
	if err := WriteTrace(fsys, "trace.jsonl", trace(30, 5)); err != nil { // the run goes on
		t.Fatal(err)
	}
	check(-1, trace(30, 5))

	if _, _, err := ReadTrace(path, 15); err == nil || !strings.Contains(err.Error(),
		"no trace of step 15: it has 3 traces, from step 10 to 30") {
		t.Errorf("step 15: error %v", err)
	}
}

func TestBadTraces(t *testing.T) {
	for text, says := range map[string]string{
		"":                      "has no trace",
		"\n":                    "row 1",
		"{}\n{\"step\": 1.5}\n": "row 2",
		"[]\n":                  "row 1",
	} {
		path := filepath.Join(t.TempDir(), "trace.jsonl")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, _, err := ReadTrace(path, -1); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: error %v, want %q in it", text, err, says)
		}
	}
}
