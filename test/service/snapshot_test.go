package service

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// A snapshot writes what the checkpoint of its step does, under every layout, and leaves no
// trace in the training.
func TestSnapshot(t *testing.T) {
	o := troupe.TextOptions{Prompt: "the ", Tokens: 24, Temperature: 1, Seed: 3}
	sets := []string{"run.steps=12", "run.checkpoint_every=1", "run.keep=0"}
	want := testrun.Trained(t, sets...)
	for _, layout := range [][]string{{"pipeline.stages=1"}, {"pipeline.stages=2"}, {"pipeline.stages=2", "pipeline.schedule=zb-h1"},
		{"pipeline.stages=2", "pipeline.schedule=zb-v"}} {
		out := filepath.Join(t.TempDir(), "out")
		run := testrun.Start(t, testrun.NewConfig(t, out, append([]string{"run.steps=12", "run.checkpoint_every=0"}, layout...)...))
		var all sync.WaitGroup
		for range 3 {
			all.Add(1)
			go func() { // ends with the run
				defer all.Done()
				for last := int64(0); last < 12; {
					s, err := run.Snapshot(context.Background(), troupe.SnapshotOptions{})
					if err != nil {
						t.Error(err)
						return
					}
					if s.Step() < last {
						t.Errorf("a snapshot of step %d after one of step %d", s.Step(), last)
					}
					if last = s.Step(); last > 0 {
						of := troupe.GenerateOptions{TextOptions: o}
						of.From = testrun.StepDir(want, int(last))
						var b strings.Builder
						if err := troupe.Generate(context.Background(), of, func(text []byte) error { b.Write(text); return nil }); err != nil {
							t.Error(err)
						}
						if got := testrun.Written(t, s, o); got != b.String() {
							t.Errorf("%v: the snapshot of step %d writes %q, the checkpoint %q", layout, last, got, b.String())
						}
					}
					if err := s.Close(); err != nil {
						t.Error(err)
					}
				}
			}()
		}
		testrun.Finish(t, run)
		all.Wait()
		a, b := testrun.Records(t, want), testrun.Records(t, out)
		for i := range b {
			if x, y := testrun.Figures(a[i]), testrun.Figures(b[i]); x != y {
				t.Fatalf("%v: line %d differs:\nwant %s\ngot  %s", layout, i+1, x, y)
			}
		}
	}
}

// Snapshots of a paused run are shared; they stay when it goes on and when it ends, and are
// limited.
func TestSnapshotLife(t *testing.T) {
	o := troupe.TextOptions{Tokens: 20}
	out := filepath.Join(t.TempDir(), "out")
	run := testrun.Start(t, testrun.NewConfig(t, out, append(testrun.Endless, "pipeline.stages=2")...))
	run.Pause()
	paused := testrun.Until(t, run, func(e troupe.PauseEvent) bool { return e.Paused })
	first, second := testrun.Snapshot(t, run, troupe.SnapshotOptions{}), testrun.Snapshot(t, run, troupe.SnapshotOptions{})
	if first.Step() != paused.Step || second.Step() != paused.Step {
		t.Errorf("paused at step %d, the snapshots are of steps %d and %d", paused.Step, first.Step(), second.Step())
	}
	text := testrun.Written(t, first, o)
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	if err := first.Close(); err != nil {
		t.Error("a second Close must do nothing:", err)
	}
	if err := first.Generate(context.Background(), o, nil); !errors.Is(err, fs.ErrClosed) ||
		!strings.HasSuffix(err.Error(), " is closed") {
		t.Errorf("a closed one: %v", err)
	}
	if again := testrun.Written(t, second, o); again != text {
		t.Errorf("it writes %q, and before %q", again, text)
	}

	held := []*troupe.Snapshot{second}
	for len(held) < troupe.LimitSnapshots {
		at := held[len(held)-1].Step()
		run.Resume()
		testrun.Until(t, run, testrun.Step(int(at)+1))
		run.Pause()
		paused := testrun.Until(t, run, func(e troupe.PauseEvent) bool { return e.Paused })
		// An older one is not accepted, whatever the options.
		held = append(held, testrun.Snapshot(t, run, troupe.SnapshotOptions{MaxAge: patience, MaxSteps: 1 << 40}))
		if s := held[len(held)-1]; s.Step() != paused.Step {
			t.Errorf("paused at step %d, the snapshot is of step %d", paused.Step, s.Step())
		}
	}
	newest := held[len(held)-1].Step()
	run.Resume()
	testrun.Until(t, run, testrun.Step(int(newest)+1))
	if _, err := run.Snapshot(context.Background(), troupe.SnapshotOptions{}); !errors.Is(err, troupe.ErrSnapshots) {
		t.Errorf("one more than the limit: %v", err)
	}
	for _, old := range []troupe.SnapshotOptions{{MaxSteps: 1 << 40}, {MaxAge: patience}} {
		s := testrun.Snapshot(t, run, old)
		if s.Step() != newest {
			t.Errorf("%+v gives one of step %d, the newest is of step %d", old, s.Step(), newest)
		}
		held = append(held, s)
	}
	run.Stop()
	result, _ := testrun.Finish(t, run)
	if again := testrun.Written(t, second, o); again != text {
		t.Errorf("when the run has ended it writes %q, and before %q", again, text)
	}
	for _, s := range held {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	last := testrun.Snapshot(t, run, troupe.SnapshotOptions{})
	if last.Step() != int64(result.Step) {
		t.Errorf("the run has ended at step %d, the snapshot is of step %d", result.Step, last.Step())
	}
	testrun.Written(t, last, o)
	if err := last.Close(); err != nil {
		t.Error(err)
	}
}

// What ends a snapshot, or prevents one.
func TestSnapshotErrors(t *testing.T) {
	run := testrun.Start(t, testrun.NewConfig(t, filepath.Join(t.TempDir(), "out"), append(testrun.Endless, tiny...)...))
	s := testrun.Snapshot(t, run, troupe.SnapshotOptions{})
	ctx, cancel := context.WithCancel(context.Background())
	n := 0
	err := s.Generate(ctx, troupe.TextOptions{Tokens: 1 << 40}, func([]byte) error {
		if n++; n == 3 {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled one: %v", err)
	}
	if _, err := run.Snapshot(ctx, troupe.SnapshotOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
	for _, o := range []troupe.TextOptions{{Tokens: -1}, {Temperature: -1}} {
		if err := s.Generate(context.Background(), o, nil); !errors.Is(err, troupe.ErrOptions) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	run.Kill()
	testrun.Drain(run)
	if _, err := run.Wait(); err == nil {
		t.Error("it was not killed")
	}
	if _, err := run.Snapshot(context.Background(), troupe.SnapshotOptions{}); !errors.Is(err, troupe.ErrNoSnapshot) {
		t.Errorf("a run that was killed before its first checkpoint: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A model that writes no text has snapshots, and says so.
func TestSnapshotOfSamples(t *testing.T) {
	cfg, err := config.Parse("digits.toml", []byte(`
[run]
steps = 1000000
eval_every = 0
checkpoint_every = 0
[model]
family = "mlp"
layers = 2
hidden = 16
[data]
format = "csv"
train = ["examples/digits/digits-train.csv"]
val = ["examples/digits/digits-test.csv"]
label = "label"
scale = 0.0625
[pipeline]
stages = 2
`), []string{"run.out=" + filepath.Join(t.TempDir(), "out")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	run := testrun.Start(t, cfg)
	testrun.Until(t, run, testrun.Step(2))
	s := testrun.Snapshot(t, run, troupe.SnapshotOptions{})
	if err := s.Generate(context.Background(), troupe.TextOptions{Tokens: 1}, nil); !errors.Is(err, troupe.ErrOptions) {
		t.Errorf("a classifier generates: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	run.Stop()
	testrun.Finish(t, run)
}
