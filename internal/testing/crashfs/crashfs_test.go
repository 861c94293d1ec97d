package crashfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func newFS(t *testing.T) (*FS, string) {
	t.Helper()
	base := t.TempDir()
	f, err := New(base)
	if err != nil {
		t.Fatal(err)
	}
	return f, base
}

// write writes a file, synced or not.
func write(t *testing.T, f *FS, name, text string, synced bool) {
	t.Helper()
	w, err := f.Create(name)
	must(t, err)
	_, err = w.Write([]byte(text))
	must(t, err)
	if synced {
		must(t, w.Sync())
	}
	must(t, w.Close())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// afterCrash returns every content of name, and "gone", that some seed gives.
func afterCrash(t *testing.T, f *FS, name string) map[string]bool {
	t.Helper()
	seen := make(map[string]bool)
	for seed := range uint64(32) {
		into := t.TempDir()
		must(t, f.Crash(into, seed))
		text, err := os.ReadFile(filepath.Join(into, name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			seen["gone"] = true
		case err != nil:
			t.Fatal(err)
		default:
			seen[string(text)] = true
		}
	}
	return seen
}

func TestCrashForgets(t *testing.T) {
	t.Run("synced file in synced folder", func(t *testing.T) {
		f, _ := newFS(t)
		write(t, f, "a", "xy", true)
		must(t, f.SyncDir("."))
		if seen := afterCrash(t, f, "a"); len(seen) != 1 || !seen["xy"] {
			t.Errorf("%v", seen)
		}
	})
	t.Run("synced file in unsynced folder", func(t *testing.T) {
		f, _ := newFS(t)
		write(t, f, "a", "xy", true)
		if seen := afterCrash(t, f, "a"); len(seen) != 2 || !seen["xy"] || !seen["gone"] {
			t.Errorf("%v", seen)
		}
	})
	t.Run("unsynced file in synced folder", func(t *testing.T) {
		f, _ := newFS(t)
		write(t, f, "a", "xy", false)
		must(t, f.SyncDir("."))
		if seen := afterCrash(t, f, "a"); len(seen) != 3 || !seen[""] || !seen["x"] || !seen["xy"] {
			t.Errorf("%v", seen)
		}
	})
	t.Run("a rename is whole or not at all", func(t *testing.T) {
		f, _ := newFS(t)
		write(t, f, "a", "new", true)
		write(t, f, "b", "old", true)
		must(t, f.SyncDir("."))
		must(t, f.Rename("a", "b"))
		if seen := afterCrash(t, f, "b"); len(seen) != 2 || !seen["new"] || !seen["old"] {
			t.Errorf("%v", seen)
		}
	})
	t.Run("what was there before is durable", func(t *testing.T) {
		base := t.TempDir()
		must(t, os.MkdirAll(filepath.Join(base, "d", "e"), 0o755))
		must(t, os.WriteFile(filepath.Join(base, "d", "a"), []byte("xy"), 0o644))
		must(t, os.Symlink("a", filepath.Join(base, "d", "l")))
		f, err := New(base)
		must(t, err)
		if seen := afterCrash(t, f, "d/l"); len(seen) != 1 || !seen["xy"] {
			t.Errorf("%v", seen)
		}
	})
	t.Run("removal in part", func(t *testing.T) {
		f, _ := newFS(t)
		must(t, f.Mkdir("d"))
		write(t, f, "d/a", "xy", true)
		must(t, f.SyncDir("d"))
		must(t, f.SyncDir("."))
		must(t, f.RemoveAll("d"))
		if seen := afterCrash(t, f, "d/a"); len(seen) != 2 || !seen["xy"] || !seen["gone"] {
			t.Errorf("%v", seen)
		}
	})
}

// What is appended to a synced file may be lost, and nothing else of it.
func TestCrashForgetsWhatWasAppended(t *testing.T) {
	f, _ := newFS(t)
	write(t, f, "a", "xy", true)
	must(t, f.SyncDir("."))
	w, err := f.Append("a")
	must(t, err)
	_, err = w.Write([]byte("z"))
	must(t, err)
	if seen := afterCrash(t, f, "a"); len(seen) != 2 || !seen["xy"] || !seen["xyz"] {
		t.Errorf("%v", seen)
	}
	must(t, w.Sync())
	if seen := afterCrash(t, f, "a"); len(seen) != 1 || !seen["xyz"] {
		t.Errorf("synced: %v", seen)
	}
	must(t, w.Truncate(1))
	must(t, w.Sync())
	must(t, w.Close())
	if seen := afterCrash(t, f, "a"); len(seen) != 1 || !seen["x"] {
		t.Errorf("cut: %v", seen)
	}
}

func TestFaults(t *testing.T) {
	f, base := newFS(t)
	f.FailAt(1, syscall.ENOSPC)
	w, err := f.Create("a")
	must(t, err)
	if n, err := w.Write([]byte("abcd")); n != 2 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("the failing write: %d, %v", n, err)
	}
	if n, err := w.Write([]byte("xy")); n != 2 || err != nil {
		t.Errorf("the write after: %d, %v", n, err)
	}
	must(t, w.Close())
	if f.Ops() != 4 {
		t.Errorf("%d operations, want 4", f.Ops())
	}

	f.CrashAt(1)
	must(t, f.SyncDir("."))
	for range 2 {
		if err := f.RemoveAll("a"); !errors.Is(err, ErrCrashed) {
			t.Errorf("after the crash: %v", err)
		}
	}
	if text, err := os.ReadFile(filepath.Join(base, "a")); err != nil || string(text) != "abxy" {
		t.Errorf("%q, %v", text, err)
	}
}
