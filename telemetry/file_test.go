package telemetry

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/internal/host/folder"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

// history has every key, and every kind of line.
var history = []Record{
	{Step: 0, ValLoss: p(5.545177444479562)},
	{
		Step: 1, Loss: p(5.5457463264465332), GradNorm: p(2.25), LR: p(1e-05), Tokens: 1024,
		TokensPerS: p(8192), StepMS: p(125), BubblePct: p(33.3), PeakMemBytes: 104857600,
	},
	{
		Step: 2, Loss: p(math.NaN()), GradNorm: p(math.Inf(1)), LR: p(2e-05), Tokens: 2048,
		TokensPerS: p(8000.5), StepMS: p(128), BubblePct: p(0), PeakMemBytes: 104857600, Skipped: true,
	},
	{
		Step: 3, Loss: p(0.30000000000000004), ValLoss: p(1e300), GradNorm: p(0), LR: p(3e-05), Tokens: 3072,
		TokensPerS: p(8000), StepMS: p(128), BubblePct: p(12.5), PeakMemBytes: 104857600, PeakPct: p(41.5), Update: "rolled_back",
	},
}

// openWriter is OpenWriter by a path.
func openWriter(path string, cutToStep int) (*Writer, error) {
	fsys, err := folder.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	w, err := OpenWriter(fsys, filepath.Base(path), cutToStep)
	return w, errors.Join(err, fsys.Close()) // the file stays open
}

func writeAll(t *testing.T, path string, cutToStep int, records ...Record) {
	t.Helper()
	w, err := openWriter(path, cutToStep)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		if err := w.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

func content(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestGoldenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "metrics.jsonl")
	writeAll(t, path, 0, history...)
	golden := filepath.Join("testdata", "metrics.jsonl")
	if *update {
		if err := os.WriteFile(golden, []byte(content(t, path)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := content(t, path), content(t, golden); got != want {
		t.Errorf("written:\n%swant:\n%s", got, want)
	}
	back, err := Read(golden)
	if err != nil || !slices.EqualFunc(back, history, sameRecord) {
		t.Errorf("the golden file reads as %+v, %v", back, err)
	}
}

func TestWriterFlushesEachLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "metrics.jsonl")
	w, err := openWriter(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range history {
		if err := w.Write(r); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(content(t, path), "\n"); n != i+1 {
			t.Errorf("%d lines after %d records", n, i+1)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.Write(history[0]); err == nil {
		t.Error("a closed file was written")
	}
}

func TestResumeCutsBack(t *testing.T) {
	const (
		zero  = `{"step":0,"val_loss":4}` + "\n"
		one   = `{"step": 1, "loss": 3, "later": "version"}` + "\n" // stays as it is
		two   = `{"step":2,"loss":2}` + "\n"
		three = `{"step":3,"loss":1}` + "\n"
	)
	for _, tc := range []struct {
		name, before string
		cutToStep    int
		after        string
	}{
		{"no file", "", 5, ""},
		{"all stay", zero + one + two, 2, zero + one + two},
		{"a later checkpoint", zero + one, 7, zero + one},
		{"cut", zero + one + two + three, 1, zero + one},
		{"cut to the validation before training", zero + one, 0, zero},
		{"cut all", zero + one, -1, ""},
		{"broken last line", zero + one + `{"step":2,"lo`, 9, zero + one},
		{"zeros at the end, as a power failure leaves them", zero + "\x00\x00\x00", 9, zero},
		{"end of the last line missing", zero + strings.TrimSuffix(one, "\n"), 9, zero + one},
	} {
		path := filepath.Join(t.TempDir(), "metrics.jsonl")
		if tc.name != "no file" {
			if err := os.WriteFile(path, []byte(tc.before), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		writeAll(t, path, tc.cutToStep, Record{Step: 5, Loss: p(0.5)})
		if got, want := content(t, path), tc.after+`{"step":5,"loss":0.5}`+"\n"; got != want {
			t.Errorf("%s:\n%swant:\n%s", tc.name, got, want)
		}
		entries, err := os.ReadDir(filepath.Dir(path))
		if err != nil || len(entries) != 1 {
			t.Errorf("%s: left in the folder: %v, %v", tc.name, entries, err)
		}
	}
}

func TestDamagedFile(t *testing.T) {
	dir := t.TempDir()
	for name, tc := range map[string]struct{ content, says string }{
		"middle": {`{"step":0}` + "\n" + `{"step":1,` + "\n" + `{"step":2}` + "\n", "row 2"},
		"empty":  {`{"step":0}` + "\n\n", "row 2"},
		"long": {`{"step":0}` + "\n" + strings.Repeat(" ", maxLineBytes+1) + `{"step":1}`,
			fmt.Sprintf("row 2 is longer than %d bytes", maxLineBytes)},
		"negative": {`{"step":-1}` + "\n", "row 1: step = -1 is negative"},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(tc.content), 0o644); err != nil {
			t.Fatal(err)
		}
		_, readErr := Read(path)
		_, openErr := openWriter(path, 0)
		for _, err := range []error{readErr, openErr} {
			if err == nil || !strings.Contains(err.Error(), tc.says) || !strings.Contains(err.Error(), path) {
				t.Errorf("%s: %v does not say %q", name, err, tc.says)
			}
		}
		if content(t, path) != tc.content {
			t.Errorf("%s: the file has changed", name)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 4 {
		t.Errorf("left in the folder: %v, %v", entries, err)
	}
	if _, err := Read(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := openWriter(filepath.Join(dir, "none", "metrics.jsonl"), 0); err == nil {
		t.Error("a file in a missing folder was opened")
	}
}

func FuzzRead(f *testing.F) {
	golden, err := os.ReadFile(filepath.Join("testdata", "metrics.jsonl"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(golden, 2)
	f.Add([]byte("{\"step\":1}\n{\"step\":2"), 1)
	f.Add([]byte("{\"step\":1,\"loss\":null,\"tokens\":-1}\r\n"), 0)
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte, cutToStep int) {
		path := filepath.Join(dir, "metrics.jsonl")
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		before, readErr := Read(path)
		w, err := openWriter(path, cutToStep)
		if (readErr != nil) != (err != nil) {
			t.Fatalf("Read says %v, OpenWriter %v", readErr, err)
		}
		if err != nil {
			return
		}
		next := Record{Step: 1, Loss: p(math.Pi)}
		if err := w.Write(next); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		want := append(slices.DeleteFunc(before, func(r Record) bool { return r.Step > cutToStep }), next)
		after, err := Read(path)
		if err != nil || !slices.EqualFunc(after, want, sameRecord) {
			t.Fatalf("after the cut to %d: %+v, %v, want %+v", cutToStep, after, err, want)
		}
	})
}
