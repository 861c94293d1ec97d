package life

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// TestChangesRepeat: a learning rate that was changed and a pause that was asked for at a
// step take effect there again when a run goes on from an older checkpoint, so that the
// figures repeat; and without them they would be others.
func TestChangesRepeat(t *testing.T) {
	sets := []string{"run.steps=24", "run.checkpoint_every=4", "run.keep=0", "run.eval_every=0", "pipeline.stages=2"}
	plain := filepath.Join(t.TempDir(), "plain")
	testrun.Train(t, plain, sets...)

	out := filepath.Join(t.TempDir(), "out")
	run := testrun.Start(t, testrun.NewConfig(t, out, sets...))
	run.Pause() // so that what follows is there in time
	paused := testrun.Until(t, run, func(e troupe.PauseEvent) bool { return e.Paused })
	rate := troupe.Change{Kind: event.ChangeRate, Step: paused.Step + 5, LR: 0.02, MinLR: 0.01}
	if err := run.Change(rate); err != nil {
		t.Fatal(err)
	}
	if err := run.Change(troupe.Change{Kind: event.ChangeRate, LR: -1}); !errors.Is(err, troupe.ErrOptions) {
		t.Errorf("a rate of -1: %v", err)
	}
	told := testrun.Until(t, run, func(e troupe.ChangeEvent) bool { return e.Kind == event.ChangeRate })
	if told.Change != rate || told.Err != nil {
		t.Errorf("told %+v", told)
	}
	run.Resume()
	if err := run.Change(troupe.Change{Kind: event.ChangePause, Step: paused.Step + 7}); err != nil {
		t.Fatal(err)
	}
	again := testrun.Until(t, run, func(e troupe.PauseEvent) bool { return e.Paused })
	if again.Step != paused.Step+7 {
		t.Errorf("it paused at step %d, asked for %d", again.Step, paused.Step+7)
	}
	run.Resume()
	testrun.Finish(t, run)
	for i, r := range testrun.Records(t, out) {
		if was := testrun.Records(t, plain)[i]; (testrun.Figures(r) != testrun.Figures(was)) != (int64(r.Step) > rate.Step) {
			t.Errorf("step %d has %s, without the change %s", r.Step, testrun.Figures(r), testrun.Figures(was))
		}
	}

	// Back at step 4 the journal says it all once more, but for the pauses, which were taken back.
	older := testrun.Rewind(t, out, 4)
	run = testrun.Start(t, testrun.NewConfig(t, older, sets...))
	_, events := testrun.Finish(t, run)
	if n := len(testrun.EventsOf[troupe.PauseEvent](events)); n > 0 {
		t.Errorf("%d pauses, which were taken back", n)
	}
	testrun.SameFigures(t, out, older)
	testrun.SameState(t, out, older, 24)
}

// TestStopAtStep: a run stops with the checkpoint of the step that was named, also when it
// goes on from an older one; a step that has ended, or never comes, is refused.
func TestStopAtStep(t *testing.T) {
	sets := []string{"run.steps=24", "run.checkpoint_every=2", "run.keep=0", "run.eval_every=0", "pipeline.stages=2"}
	plain := filepath.Join(t.TempDir(), "plain")
	testrun.Train(t, plain, sets...)

	out := filepath.Join(t.TempDir(), "out")
	run := testrun.Start(t, testrun.NewConfig(t, out, sets...))
	if err := run.Change(troupe.Change{Kind: event.ChangePause, Step: 3}); err != nil {
		t.Fatal(err)
	}
	paused := testrun.Until(t, run, func(e troupe.PauseEvent) bool { return e.Paused }).Step
	for _, c := range []struct {
		step    int64
		refused bool
	}{{1, true}, {paused, true}, {25, true}, {paused + 2, false}} {
		ch := troupe.Change{Kind: event.ChangeStop, Step: c.step}
		if err := run.Change(ch); err != nil {
			t.Fatal(err)
		}
		told := testrun.Until(t, run, func(e troupe.ChangeEvent) bool { return e.Kind == event.ChangeStop })
		if told.Change != ch || errors.Is(told.Err, event.ErrStep) != c.refused {
			t.Errorf("a stop at step %d: told %+v", c.step, told)
		}
	}
	run.Resume()
	res, _ := testrun.Finish(t, run)
	if !res.Stopped || int64(res.Step) != paused+2 {
		t.Fatalf("it ended with %+v, to be stopped at step %d", res, paused+2)
	}

	older := testrun.Rewind(t, out, 2)
	for _, c := range []struct {
		out  string
		step int
	}{{older, int(paused + 2)}, {out, 24}, {older, 24}} {
		res, _ := testrun.Finish(t, testrun.Start(t, testrun.NewConfig(t, c.out, sets...)))
		if res.Stopped != (c.step < 24) || res.Step != c.step {
			t.Errorf("it went on and ended with %+v, not at step %d", res, c.step)
		}
	}
	for _, dir := range []string{out, older} {
		testrun.SameFigures(t, plain, dir)
		testrun.SameState(t, plain, dir, 24)
	}
}
