package rundir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/internal/host/folder"
	"github.com/troupe-ml/troupe/telemetry"
)

// FuzzTail: lines come whole, once, and in order, however the file grows and in whatever parts it is read.
func FuzzTail(f *testing.F) {
	f.Add([]byte("a\nbc\n\nd"), uint8(2), uint8(1))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte, cut, parts uint8) {
		if len(text) > 1<<12 {
			return
		}
		path := filepath.Join(dir, "file")
		at := min(len(text), int(cut))
		if err := os.WriteFile(path, text[:at], 0o600); err != nil {
			t.Fatal(err)
		}
		fsys, err := folder.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = fsys.Close() }()
		tail := newTail(fsys, "file", 1<<20)
		tail.parts = int(parts) + 1
		var got []byte
		read := func() {
			if err := tail.read(func() { got = nil }, func(_ int64, line []byte) error {
				got = append(append(got, line...), '\n')
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		read()
		file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = file.Write(text[at:])
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		read()
		want := text[:len(text)-len(text[lastBreak(text):])]
		if string(got) != string(want) {
			t.Errorf("%q comes as %q", text, got)
		}
	})
}

func lastBreak(text []byte) int {
	for i := len(text); i > 0; i-- {
		if text[i-1] == '\n' {
			return i
		}
	}
	return 0
}

// FuzzTraceStep: no line of a trace.jsonl does worse than to have no step.
func FuzzTraceStep(f *testing.F) {
	f.Add([]byte(`{"step":12,`))
	f.Fuzz(func(t *testing.T, line []byte) {
		if step, ok := stepOfTrace(line); ok && step < 0 {
			t.Errorf("%q is of step %d", line, step)
		}
	})
}

// TestReader: what is kept of a folder's files, and what of lines that are broken, not finished, or of before.
func TestReader(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	fsys, err := folder.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = fsys.Close() }()
	var marks []string
	r := NewReader(fsys, ReaderOptions{Stats: 4, Samples: 2, Traces: 10,
		Mark: func(m telemetry.Mark) { marks = append(marks, m.Kind) }, Forget: func() { marks = nil }})
	if err := r.Refresh(); err != nil || r.Config != nil || r.History != nil || !r.Changed.IsZero() {
		t.Fatalf("an empty folder: %+v, %v", r, err)
	}
	var stats, samples strings.Builder
	for i := range 9 {
		fmt.Fprintf(&stats, `{"step":%d,"layers":[]}`+"\n", i)
		fmt.Fprintf(&samples, `{"step":%d,"text":"x"}`+"\n", i)
	}
	write("config.toml", "[data]\ntrain = [\"a.txt\"]\n")
	write("metrics.jsonl", `{"step":1,"loss":2}`+"\n"+`{"step":2,"lo`)
	write("events.jsonl", `{"step":1,"kind":"start"}`+"\nnonsense\n"+`{"step":2,"ki`)
	write("stats.jsonl", stats.String()+`{"step":8,"layers":[{"name":"embed","weight_norm":null}]}`+"\n")
	write("samples.jsonl", samples.String())
	write("trace.jsonl", `{"step":1,"table":"a"}`+"\n"+`{"step":3,"table":"b"}`+"\n"+`{"step":2,"table":"c"}`+"\n")
	write("checkpoints/step-00000004/x", "")
	write("checkpoints/other/x", "")
	if err := r.Refresh(); err != nil {
		t.Fatal(err)
	}
	if r.Config == nil || r.History.Len() != 1 || r.Changed.IsZero() ||
		!slices.Equal(marks, []string{"start"}) || !slices.Equal(r.Checkpoints, []int{4}) {
		t.Errorf("%+v, marks %v", r, marks)
	}
	if n := len(r.Stats); n > 4 || r.Stats[n-1].Step != 8 || len(r.Stats[n-1].Layers) != 1 || len(r.Samples) != 2 || r.Samples[1].Step != 8 {
		t.Errorf("stats %+v, samples %+v", r.Stats, r.Samples)
	}
	if last, err := r.Trace(r.Traced, -1); err != nil || len(r.Traced) != 2 || last.Step != 2 || last.Table != "c" {
		t.Errorf("%+v, %v, of %+v", last, err, r.Traced)
	}
	if _, err := r.Trace(r.Traced, 3); !errors.Is(err, ErrNoTrace) {
		t.Errorf("a trace that was replaced: %v", err)
	}
	write("events.jsonl", `{"step":5,"kind":"resume"}`+"\n")
	if err := r.Refresh(); err != nil || !slices.Equal(marks, []string{"resume"}) {
		t.Errorf("after it was replaced: %v, %v", marks, err)
	}
}
