package telemetry

import (
	"errors"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

// A line that the disk has no room for leaves no half behind, and the next one
// is whole once there is room again.
func TestFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "metrics.jsonl")
	w, err := openWriter(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(history[0]); err != nil {
		t.Fatal(err)
	}

	// A limit on the size of files stands in for the disk.
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: uint64(w.size) + 10, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	err = w.Write(history[1])
	if limitErr := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old); limitErr != nil {
		t.Fatal(limitErr)
	}
	if !errors.Is(err, syscall.EFBIG) {
		t.Errorf("error %v", err)
	}

	if err := w.Write(history[2]); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := Read(path)
	if want := []Record{history[0], history[2]}; err != nil || !slices.EqualFunc(got, want, sameRecord) {
		t.Errorf("the file reads as %+v, %v, want %+v", got, err, want)
	}
}
