package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/telemetry"
)

// takeSnapshot takes a snapshot of a run right after a checkpoint, and generates text with it.
func takeSnapshot(ctx context.Context, run *troupe.Run, saved int64) error {
	s, err := run.Snapshot(ctx, troupe.SnapshotOptions{})
	if err != nil {
		return err
	}
	if s.Step() < saved {
		err = fmt.Errorf("a snapshot of step %d, after the checkpoint of step %d", s.Step(), saved)
	}
	n := 0
	err = errors.Join(err, s.Generate(ctx, troupe.TextOptions{Tokens: 4}, func(text []byte) error { n += len(text); return nil }))
	if n == 0 {
		err = errors.Join(err, errors.New("no text"))
	}
	return errors.Join(err, s.Close())
}

// TestSnapshots: if a run's ranks are in other processes, its snapshots come from the last checkpoint.
func TestSnapshots(t *testing.T) {
	g := newGroup(t, new(group))
	g.join(t, workers(2)...)
	out := filepath.Join(t.TempDir(), "out")
	sets := keys(t, out, []string{"pipeline.stages=2", "run.sample_tokens=5", "run.best=full"})
	g.train(t, command{Config: smallRun, Sets: sets, Workers: 2, Snapshot: true})
	samples, err := telemetry.ReadSamples(filepath.Join(out, "samples.jsonl"))
	if err != nil || len(samples) == 0 { // the second may have come while the first was being written
		t.Fatalf("samples: %+v, %v", samples, err)
	}
	for _, s := range samples {
		o := troupe.GenerateOptions{TextOptions: troupe.TextOptions{Tokens: 5}}
		o.From = filepath.Join(out, "checkpoints", fmt.Sprintf("step-%08d", s.Step))
		text := ""
		if err := troupe.Generate(t.Context(), o, func(b []byte) error { text += string(b); return nil }); err != nil {
			t.Fatal(err)
		}
		if s.Text != string([]rune(text)) {
			t.Errorf("step %d: %q, the checkpoint writes %q", s.Step, s.Text, text)
		}
	}
}
