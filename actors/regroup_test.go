package actors_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/internal/run/trainstate"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// TestRegroup: an attempt that is asked to regroup ends with a checkpoint of its last step, at once or at the next checkpoint.
func TestRegroup(t *testing.T) {
	for name, c := range map[string]struct {
		every, after int64
		paused       bool
		then         func(*actors.Run)
		end          func(actors.Outcome) bool
	}{
		"after the step":     {end: func(o actors.Outcome) bool { return o.Regroup != nil }},
		"while it is paused": {paused: true, end: func(o actors.Outcome) bool { return o.Regroup != nil }},
		"at a checkpoint":    {every: 8, after: 1, end: func(o actors.Outcome) bool { return o.Regroup != nil && o.State.Step%8 == 0 }},
		"with a stop": {after: 1, then: func(r *actors.Run) { r.Change(event.Change{Kind: event.ChangeStop}) },
			end: func(o actors.Outcome) bool { return o.Regroup == nil && o.Stopped }},
		"with a kill": {after: 1, then: (*actors.Run).Kill,
			end: func(o actors.Outcome) bool { return o.Regroup == nil && errors.Is(o.Err, actors.ErrKilled) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := new(log)
			spec := fakeRun{table: generate(t, scheduler.Spec{Ranks: 2, Chunks: 1, Microbatches: 4}), threads: 2, steps: 1 << 20}.spec(t, l)
			spec.CheckpointEvery = c.every
			run := start(t, spec)
			eventually(t, run, "a step", func() bool { return len(eventsOf[event.StepEvent](l)) > 2 })
			if c.paused {
				run.Pause()
				eventually(t, run, "a pause", func() bool { return len(eventsOf[event.PauseEvent](l)) > 0 })
			}
			run.Regroup(c.after, event.RegroupEvent{Leaving: []string{"w1"}})
			run.Regroup(c.after, event.RegroupEvent{Leaving: []string{"w1", "w2"}, Free: []string{"w3"}})
			if c.then != nil {
				c.then(run)
			}
			out := run.Wait()
			if !c.end(out) {
				t.Fatalf("the attempt ended with %+v", out)
			}
			if out.Regroup == nil {
				return
			}
			saved := eventsOf[event.CheckpointEvent](l)
			if len(saved) == 0 || saved[len(saved)-1].Step != out.State.Step || out.Regroup.Step != out.State.Step {
				t.Errorf("it ended after step %d, says %d, and saved %v", out.State.Step, out.Regroup.Step, saved)
			}
			if !slices.Equal(out.Regroup.Leaving, []string{"w1", "w2"}) || !slices.Equal(out.Regroup.Free, []string{"w3"}) {
				t.Errorf("the reasons are %+v", *out.Regroup)
			}
		})
	}
}

// TestRegroupWaits: an attempt whose checkpoint can't be written continues, and regroups at a later one.
func TestRegroupWaits(t *testing.T) {
	l := new(log)
	spec := fakeRun{table: generate(t, scheduler.Spec{Ranks: 2, Chunks: 1, Microbatches: 4}), threads: 2, steps: 1 << 20}.spec(t, l)
	spec.CheckpointEvery = 2
	spec.MayPass = func(err error) bool { return errors.Is(err, errPasses) }
	var failed, asked atomic.Int64
	spec.WriteCheckpoint = func(ctx context.Context, s trainstate.State, saved []stages.Saved, best bool) (string, error) {
		if asked.Load() > 0 && failed.CompareAndSwap(0, s.Step) {
			return "", errPasses
		}
		return l.write(ctx, s, saved, best)
	}
	run := start(t, spec)
	asked.Store(1)
	run.Regroup(1, event.RegroupEvent{Free: []string{"w3"}})
	if out := run.Wait(); out.Regroup == nil || out.State.Step <= failed.Load() && failed.Load() > 0 {
		t.Errorf("the checkpoint of step %d failed; the attempt ended with %+v", failed.Load(), out)
	}
}
