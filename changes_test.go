package troupe_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// TestChangesRepeat: a learning rate that was changed and a pause that was asked for at a
// step take effect there again when a run goes on from an older checkpoint, so that the
// figures repeat; and without them they would be others.
func TestChangesRepeat(t *testing.T) {
	sets := []string{"run.steps=24", "run.checkpoint_every=4", "run.keep=0", "run.eval_every=0", "pipeline.stages=2"}
	plain := filepath.Join(t.TempDir(), "plain")
	train(t, plain, sets...)

	out := filepath.Join(t.TempDir(), "out")
	run := start(t, newConfig(t, out, sets...))
	run.Pause() // so that what follows is there in time
	paused := until(t, run, func(e troupe.PauseEvent) bool { return e.Paused })
	rate := troupe.Change{Kind: event.ChangeRate, Step: paused.Step + 5, LR: 0.02, MinLR: 0.01}
	if err := run.Change(rate); err != nil {
		t.Fatal(err)
	}
	if err := run.Change(troupe.Change{Kind: event.ChangeRate, LR: -1}); !errors.Is(err, troupe.ErrOptions) {
		t.Errorf("a rate of -1: %v", err)
	}
	told := until(t, run, func(e troupe.ChangeEvent) bool { return e.Kind == event.ChangeRate })
	if told.Change != rate || told.Err != nil {
		t.Errorf("told %+v", told)
	}
	run.Resume()
	if err := run.Change(troupe.Change{Kind: event.ChangePause, Step: paused.Step + 7}); err != nil {
		t.Fatal(err)
	}
	again := until(t, run, func(e troupe.PauseEvent) bool { return e.Paused })
	if again.Step != paused.Step+7 {
		t.Errorf("it paused at step %d, asked for %d", again.Step, paused.Step+7)
	}
	run.Resume()
	finish(t, run)
	for i, r := range records(t, out) {
		if was := records(t, plain)[i]; (figures(r) != figures(was)) != (int64(r.Step) > rate.Step) {
			t.Errorf("step %d has %s, without the change %s", r.Step, figures(r), figures(was))
		}
	}

	// Back at step 4 the journal says it all once more, but for the pauses, which were taken back.
	older := rewind(t, out, 4)
	run = start(t, newConfig(t, older, sets...))
	_, events := finish(t, run)
	if n := len(eventsOf[troupe.PauseEvent](events)); n > 0 {
		t.Errorf("%d pauses, which were taken back", n)
	}
	sameFigures(t, out, older)
	sameState(t, out, older, 24)
}

// TestStopAtStep: a run stops with the checkpoint of the step that was named, also when it
// goes on from an older one; a step that has ended, or never comes, is refused.
func TestStopAtStep(t *testing.T) {
	sets := []string{"run.steps=24", "run.checkpoint_every=2", "run.keep=0", "run.eval_every=0", "pipeline.stages=2"}
	plain := filepath.Join(t.TempDir(), "plain")
	train(t, plain, sets...)

	out := filepath.Join(t.TempDir(), "out")
	run := start(t, newConfig(t, out, sets...))
	if err := run.Change(troupe.Change{Kind: event.ChangePause, Step: 3}); err != nil {
		t.Fatal(err)
	}
	paused := until(t, run, func(e troupe.PauseEvent) bool { return e.Paused }).Step
	for _, c := range []struct {
		step    int64
		refused bool
	}{{1, true}, {paused, true}, {25, true}, {paused + 2, false}} {
		ch := troupe.Change{Kind: event.ChangeStop, Step: c.step}
		if err := run.Change(ch); err != nil {
			t.Fatal(err)
		}
		told := until(t, run, func(e troupe.ChangeEvent) bool { return e.Kind == event.ChangeStop })
		if told.Change != ch || errors.Is(told.Err, event.ErrStep) != c.refused {
			t.Errorf("a stop at step %d: told %+v", c.step, told)
		}
	}
	run.Resume()
	res, _ := finish(t, run)
	if !res.Stopped || int64(res.Step) != paused+2 {
		t.Fatalf("it ended with %+v, to be stopped at step %d", res, paused+2)
	}

	older := rewind(t, out, 2)
	for _, c := range []struct {
		out  string
		step int
	}{{older, int(paused + 2)}, {out, 24}, {older, 24}} {
		res, _ := finish(t, start(t, newConfig(t, c.out, sets...)))
		if res.Stopped != (c.step < 24) || res.Step != c.step {
			t.Errorf("it went on and ended with %+v, not at step %d", res, c.step)
		}
	}
	for _, dir := range []string{out, older} {
		sameFigures(t, plain, dir)
		sameState(t, plain, dir, 24)
	}
}
