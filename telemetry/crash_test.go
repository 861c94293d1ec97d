package telemetry_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/troupe-ml/troupe/internal/testing/crashfs"
	"github.com/troupe-ml/troupe/telemetry"
)

// A crash at any operation of the cut leaves the whole old file or the whole new one,
// and beside it at most one file, whose name says that it is not finished.
func TestCrashWhileTheFileIsCut(t *testing.T) {
	const (
		before = `{"step":0,"val_loss":4}` + "\n" + `{"step":1,"loss":3}` + "\n" + `{"step":2,"loss":2}` + "\n"
		after  = `{"step":0,"val_loss":4}` + "\n" + `{"step":1,"loss":3}` + "\n"
	)
	cut := func(t *testing.T, crash int) (fsys *crashfs.FS, dir string, err error) {
		dir = t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "metrics.jsonl"), []byte(before), 0o644); err != nil {
			t.Fatal(err)
		}
		if fsys, err = crashfs.New(dir); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = fsys.Close() })
		if crash >= 0 {
			fsys.CrashAt(crash)
		}
		w, err := telemetry.OpenWriter(fsys, "metrics.jsonl", 1)
		if err == nil {
			err = w.Close()
		}
		return fsys, dir, err
	}
	check := func(t *testing.T, dir string, want ...string) {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(dir, "metrics.jsonl"))
		if err != nil || !slices.Contains(want, string(text)) {
			t.Errorf("the file is %q, %v", text, err)
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.Name() != "metrics.jsonl" && e.Name() != ".tmp-metrics.jsonl" {
				t.Errorf("it left %s", e.Name())
			}
		}
	}
	fsys, dir, err := cut(t, -1)
	if err != nil {
		t.Fatal(err)
	}
	check(t, dir, after)
	for k := range fsys.Ops() {
		fsys, dir, err := cut(t, k)
		if !errors.Is(err, crashfs.ErrCrashed) {
			t.Fatalf("operation %d: no crash: %v", k, err)
		}
		check(t, dir, before, after)
		for seed := range uint64(4) {
			left := t.TempDir()
			if err := fsys.Crash(left, seed); err != nil {
				t.Fatal(err)
			}
			check(t, left, before, after)
		}
		if t.Failed() {
			t.Fatalf("after a crash at operation %d", k)
		}
	}
}
