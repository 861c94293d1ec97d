package testrun

import (
	"bytes"
	"context"
	"testing"

	"github.com/troupe-ml/troupe"
)

// Written returns the text that a snapshot generates.
func Written(t testing.TB, s *troupe.Snapshot, o troupe.TextOptions) string {
	t.Helper()
	var b bytes.Buffer
	if err := s.Generate(context.Background(), o, func(text []byte) error { b.Write(text); return nil }); err != nil {
		t.Error(err)
	}
	return b.String()
}

// Snapshot takes a snapshot of a run.
func Snapshot(t testing.TB, run *troupe.Run, o troupe.SnapshotOptions) *troupe.Snapshot {
	t.Helper()
	s, err := run.Snapshot(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
