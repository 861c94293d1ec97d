package actors_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/internal/run/trainstate"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// errPasses is an error that may pass.
var errPasses = errors.New("too many open files")

// TestSaveAgain: a checkpoint that can't be written for a reason that may pass does not end the run. Each time there is
// a warning; training continues; a request for one is done by the next; the last is tried for a while, and if it
// can't be written the run has an error.
func TestSaveAgain(t *testing.T) {
	for _, tc := range []struct {
		name   string
		fails  func(step int64, try int) bool // the n-th write
		steps  int64
		every  int64
		saved  string
		warned int
		err    string
	}{
		{"once in the middle", func(step int64, try int) bool { return try == 1 }, 4, 2, "[4]", 1, ""},
		{"twice at the end", func(_ int64, try int) bool { return try <= 2 }, 2, 0, "[2]", 2, ""},
		{"always", func(int64, int) bool { return true }, 2, 0, "[]", actors.LimitLastSaves - 1,
			fmt.Sprintf("checkpoint of step 2, after %d attempts: too many open files", actors.LimitLastSaves)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			l := new(log)
			spec := fakeRun{table: generate(t, scheduler.Spec{Ranks: 2, Chunks: 1, Microbatches: 4}), threads: 2, steps: tc.steps}.spec(t, l)
			spec.CheckpointEvery = tc.every
			spec.MayPass = func(err error) bool { return errors.Is(err, errPasses) }
			tries := 0
			spec.WriteCheckpoint = func(ctx context.Context, s trainstate.State, saved []stages.Saved, best bool) (string, error) {
				if tries++; tc.fails(s.Step, tries) {
					return "", errPasses
				}
				return l.write(ctx, s, saved, best)
			}
			out := start(t, spec).Wait()
			if tc.err == "" && out.Err != nil || tc.err != "" && (out.Err == nil || !strings.Contains(out.Err.Error(), tc.err)) {
				t.Errorf("the run: %v, want %q", out.Err, tc.err)
			}
			var saved []int64
			for _, e := range eventsOf[event.CheckpointEvent](l) {
				saved = append(saved, e.Step)
			}
			if got := fmt.Sprint(saved); got != tc.saved {
				t.Errorf("saved %s, want %s", got, tc.saved)
			}
			warnings := eventsOf[event.WarningEvent](l)
			if len(warnings) != tc.warned {
				t.Errorf("%d warnings, want %d: %v", len(warnings), tc.warned, warnings)
			}
			for _, w := range warnings {
				if !strings.Contains(w.Text, "cannot write the ") || !strings.Contains(w.Text, ": too many open files") {
					t.Errorf("a warning: %s", w.Text)
				}
			}
		})
	}
}

// TestSaveAgainMeanwhile: training continues while a checkpoint can't be written, and another one is written as soon as
// that is possible, though none is due.
func TestSaveAgainMeanwhile(t *testing.T) {
	l := new(log)
	spec := fakeRun{table: generate(t, scheduler.Spec{Ranks: 2, Chunks: 1, Microbatches: 4}), threads: 2, steps: 1 << 20}.spec(t, l)
	spec.CheckpointEvery = 2
	spec.MayPass = func(err error) bool { return errors.Is(err, errPasses) }
	var failed atomic.Int64
	spec.WriteCheckpoint = func(ctx context.Context, s trainstate.State, saved []stages.Saved, best bool) (string, error) {
		if failed.Load() == 0 {
			failed.Store(s.Step)
			return "", errPasses
		}
		return l.write(ctx, s, saved, best)
	}
	run := start(t, spec)
	eventually(t, run, "a checkpoint", func() bool { return len(eventsOf[event.CheckpointEvent](l)) > 0 })
	run.Change(event.Change{Kind: event.ChangeStop})
	if out := run.Wait(); out.Err != nil {
		t.Error(out.Err)
	}
	if first := eventsOf[event.CheckpointEvent](l)[0].Step; first < failed.Load()+1 {
		t.Errorf("the checkpoint of step %d could not be written, and the next is of %d", failed.Load(), first)
	}
}

// TestWriteAgain: a line that can't be written for a reason that may pass is tried again, until the run is asked to stop:
// then a few times more, and it fails. A run that is killed does not wait.
func TestWriteAgain(t *testing.T) {
	for name, c := range map[string]struct {
		fails int // tries of step 2's line
		then  func(*actors.Run)
		err   string
	}{
		"passes":              {3, nil, ""},
		"stop":                {1 << 30, func(r *actors.Run) { r.Change(event.Change{Kind: event.ChangeStop}) }, "too many open files"},
		"passes after a stop": {4, func(r *actors.Run) { r.Change(event.Change{Kind: event.ChangeStop}) }, ""},
		"kill":                {1 << 30, (*actors.Run).Kill, "killed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := fakeRun{table: generate(t, scheduler.Spec{Ranks: 2, Chunks: 1, Microbatches: 4}), threads: 2, steps: 3}.spec(t, new(log))
			spec.MayPass = func(err error) bool { return errors.Is(err, errPasses) }
			tries, third := 0, make(chan struct{})
			spec.WriteRecord = func(r telemetry.Record) error {
				if r.Step != 2 {
					return nil
				}
				if tries++; tries == 3 {
					close(third)
				}
				if tries <= c.fails {
					return errPasses
				}
				return nil
			}
			run := start(t, spec)
			<-third
			if c.then != nil {
				c.then(run)
			}
			out := run.Wait()
			if c.err == "" && out.Err != nil || c.err != "" && (out.Err == nil || !strings.Contains(out.Err.Error(), c.err)) {
				t.Errorf("it ends with %v, want %q", out.Err, c.err)
			}
			if name == "stop" && tries < 3+actors.LimitWrites {
				t.Errorf("%d tries", tries)
			}
		})
	}
}
