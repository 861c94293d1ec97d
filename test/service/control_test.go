package service

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// tiny makes smallRun's model as small as one can be.
var tiny = []string{"model.layers=1", "model.hidden=8", "model.heads=1", "model.context=4", "batch.sequences=1"}

// TestControl pauses a run, looks at it, saves it while it rests, lets it go on,
// and stops it.
func TestControl(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	run := testrun.Start(t, testrun.NewConfig(t, out, append(testrun.Endless, "pipeline.stages=2")...))
	testrun.Until(t, run, testrun.Step(2))
	run.Pause()
	paused := testrun.Until(t, run, func(e troupe.PauseEvent) bool { return e.Paused })

	status := run.Status()
	text := status.String()
	for _, want := range []string{"scheduler", "stage 0", "stage 1", "loader", "checkpoint", "metrics", "paused"} {
		if !strings.Contains(text, want) {
			t.Errorf("the status has no %q:\n%s", want, text)
		}
	}
	if s := status.Actors[0]; s.Doing != event.Paused || s.Step != paused.Step {
		t.Errorf("the scheduler is %v at step %d, it paused at %d", s.Doing, s.Step, paused.Step)
	}

	run.Checkpoint()
	saved := testrun.Until(t, run, func(e troupe.CheckpointEvent) bool { return true })
	if saved.Step != paused.Step || saved.Dir != testrun.StepDir(out, int(paused.Step)) {
		t.Errorf("paused at step %d, it saved step %d in %s", paused.Step, saved.Step, saved.Dir)
	}
	if report, err := checkpoint.Verify(saved.Dir); err != nil || !report.Intact() {
		t.Errorf("%v, %v", report, err)
	}

	run.Resume()
	testrun.Until(t, run, func(e troupe.PauseEvent) bool { return !e.Paused && e.Step == paused.Step })
	if next := testrun.Until(t, run, testrun.Step(0)); next.Step != int(paused.Step)+1 {
		t.Errorf("after step %d comes step %d", paused.Step, next.Step)
	}
	run.Stop()
	result, events := testrun.Finish(t, run)
	if !result.Stopped || result.Dir != testrun.StepDir(out, result.Step) || result.Step <= int(paused.Step) {
		t.Errorf("it ended with %+v", result)
	}
	if last, ok := events[len(events)-1].(troupe.CheckpointEvent); !ok || last.Dir != result.Dir {
		t.Errorf("the last event is %+v", events[len(events)-1])
	}

	// A run that has ended takes no more orders, and says so quietly.
	run.Pause()
	run.Resume()
	run.Checkpoint()
	run.Stop()
	run.Kill()
	if again, err := run.Wait(); err != nil || again.Step != result.Step || again.Dir != result.Dir {
		t.Errorf("it ended with %+v, %v, and before with %+v", again, err, result)
	}
	if text := run.Status().String(); text == "" {
		t.Error("there is no status any more")
	}
}

// TestStopWhilePaused: nobody has to resume a run to end it.
func TestStopWhilePaused(t *testing.T) {
	run := testrun.Start(t, testrun.NewConfig(t, filepath.Join(t.TempDir(), "out"), testrun.Endless...))
	run.Pause()
	paused := testrun.Until(t, run, func(e troupe.PauseEvent) bool { return e.Paused })
	run.Stop()
	if result, _ := testrun.Finish(t, run); result.Step != int(paused.Step) || result.Dir == "" {
		t.Errorf("it ended with %+v, paused at step %d", result, paused.Step)
	}
}

// TestStopGoesOn: stopping changes nothing but the time.
func TestStopGoesOn(t *testing.T) {
	for _, validated := range []string{"run.eval_every=0", "run.eval_every=1"} {
		want := testrun.Trained(t, "run.steps=20", validated)
		out := filepath.Join(t.TempDir(), "out")
		for _, at := range []int{1, 4, 9} {
			run := testrun.Start(t, testrun.NewConfig(t, out, "run.steps=20", validated))
			testrun.Until(t, run, testrun.Step(at))
			run.Stop()
			if result, _ := testrun.Finish(t, run); !result.Stopped {
				t.Logf("it ended before it was stopped behind step %d: the machine is busy", at)
				break
			}
		}
		testrun.Train(t, out, "run.steps=20", validated)
		testrun.SameFigures(t, want, out)
		testrun.SameState(t, want, out, 20)
	}
}

// TestContext: the end of the context stops the run, with a checkpoint.
func TestContext(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	ctx, cancel := context.WithCancel(context.Background())
	run, err := troupe.Start(ctx, testrun.NewConfig(t, out, testrun.Endless...), troupe.Options{})
	if err != nil {
		t.Fatal(err)
	}
	testrun.Until(t, run, testrun.Step(3))
	cancel()
	result, _ := testrun.Finish(t, run)
	if !result.Stopped || result.Step < 3 || result.Dir != testrun.StepDir(out, result.Step) {
		t.Errorf("it ended with %+v", result)
	}

	// One that has ended already: the run is set up, saved, and over.
	run, err = troupe.Start(ctx, testrun.NewConfig(t, out, testrun.Endless...), troupe.Options{})
	if err != nil {
		t.Fatal(err)
	}
	again, _ := testrun.Finish(t, run)
	if !again.Stopped || again.Step < result.Step {
		t.Errorf("it ended with %+v, after %+v", again, result)
	}
	fresh := filepath.Join(t.TempDir(), "fresh")
	run, err = troupe.Start(ctx, testrun.NewConfig(t, fresh, testrun.Endless...), troupe.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if result, _ = testrun.Finish(t, run); !result.Stopped || result.Dir == "" {
		t.Errorf("it ended with %+v", result)
	}
	testrun.Train(t, fresh) // and it can be taken up
}

// TestKilledAtOnce: without a checkpoint, and with the lock given back.
func TestKilledAtOnce(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	run := testrun.Start(t, testrun.NewConfig(t, out, testrun.Endless...))
	testrun.Until(t, run, testrun.Step(2))
	run.Kill()
	testrun.Drain(run)
	if _, err := run.Wait(); !errors.Is(err, actors.ErrKilled) {
		t.Errorf("it ended with %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(out, "checkpoints", "*")); err != nil || len(left) > 0 {
		t.Errorf("it wrote %v, %v", left, err)
	}
	testrun.Train(t, out)
}

// TestEvents: every step, in order, and each checkpoint after its step.
func TestEvents(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	cfg := testrun.NewConfig(t, out, "pipeline.stages=2")
	run, err := troupe.Start(context.Background(), cfg, troupe.Options{Trace: true})
	if err != nil {
		t.Fatal(err)
	}
	info := run.Info()
	if info.Stages != 2 || info.Microbatches != 8 || info.Steps != 6 || info.ResumedAt != 0 || info.EvalWindows != 16 ||
		info.Schedule != "1f1b" {
		t.Errorf("%+v", info)
	}
	result, events := testrun.Finish(t, run)
	next := 0
	for _, e := range events {
		switch e := e.(type) {
		case troupe.StepEvent:
			if e.Step != next {
				t.Errorf("step %d comes after %d", e.Step, next-1)
			}
			next = e.Step + 1
			if eval := e.Step%3 == 0; eval != (e.ValLoss != nil) {
				t.Errorf("step %d: validation loss %v", e.Step, e.ValLoss)
			}
			if e.Step > 0 && (len(e.Trace) != 2 || len(e.Trace[0]) != 16 || e.Trace[0][0].Action.String() != "0F0") {
				t.Errorf("step %d: trace %v", e.Step, e.Trace)
			}
		case troupe.CheckpointEvent:
			if int(e.Step) >= next || e.Dir != testrun.StepDir(out, int(e.Step)) {
				t.Errorf("the checkpoint %+v comes before step %d", e, next)
			}
		default:
			t.Errorf("unexpected %T %+v", e, e)
		}
	}
	if next != 7 || len(testrun.EventsOf[troupe.CheckpointEvent](events)) != 2 {
		t.Errorf("%d step events, checkpoints %v", next, testrun.EventsOf[troupe.CheckpointEvent](events))
	}
	last := testrun.Records(t, out)[6]
	if result.Step != 6 || result.Stopped || result.Dir != testrun.StepDir(out, 6) || result.LastValLoss != *last.ValLoss ||
		result.BestStep != 6 || result.BestValLoss != *last.ValLoss || math.IsNaN(result.FirstValLoss) {
		t.Errorf("%+v", result)
	}
}

// TestNobodyReads: a run whose events nobody reads goes on, keeps what is not a
// step, and says how much was lost.
func TestNobodyReads(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	const steps = troupe.LimitEvents + 100
	cfg := testrun.NewConfig(t, out, append(tiny, "run.eval_every=0", "run.checkpoint_every=0")...)
	cfg.Run.Steps = steps
	run := testrun.Start(t, cfg)
	result, err := run.Wait()
	if err != nil || result.Step != steps {
		t.Fatalf("it ended with %+v, %v", result, err)
	}
	events := testrun.Drain(run)
	if len(events) > troupe.LimitEvents || len(testrun.EventsOf[troupe.CheckpointEvent](events)) != 1 {
		t.Errorf("%d events, checkpoints %v", len(events), testrun.EventsOf[troupe.CheckpointEvent](events))
	}
	warnings := testrun.EventsOf[troupe.WarningEvent](events)
	if len(warnings) != 1 || !strings.Contains(warnings[0].Text, "were dropped") {
		t.Errorf("warnings %v", warnings)
	}
	if lines := len(testrun.Records(t, out)); lines != steps+1 {
		t.Errorf("metrics.jsonl has %d lines", lines)
	}
}

// TestOutputFolder: the files that people and other programs look for.
func TestOutputFolder(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	testrun.Train(t, out, "model.family=llama", "run.eval_every=1", "optimizer.lr=1e-9", "optimizer.min_lr=0", "run.checkpoint_every=2",
		"run.keep=1")
	for _, name := range []string{"config.json", "config.toml", "manifest.json", "model.safetensors", "optimizer.safetensors",
		"tokenizer.json", "trainer.json"} {
		if _, err := os.Stat(filepath.Join(testrun.StepDir(out, 6), name)); err != nil {
			t.Error(err)
		}
	}
	if a, b := testrun.Read(t, filepath.Join(out, "config.toml")), testrun.Read(t,
		filepath.Join(testrun.StepDir(out, 6), "config.toml")); a != b {
		t.Errorf("the folder's configuration is not its checkpoint's:\n%s\n%s", a, b)
	}
	store := testrun.OpenStore(t, out)
	last, _, errLast := store.Last()
	best, _, errBest := store.Best()
	steps, errSteps := store.Steps()
	if err := errors.Join(errLast, errBest, errSteps); err != nil {
		t.Fatal(err)
	}
	wantBest, lowest := 0, math.Inf(1)
	for _, r := range testrun.Records(t, out)[1:] {
		if *r.ValLoss < lowest {
			wantBest, lowest = r.Step, *r.ValLoss
		}
	}
	if last != 6 || best != wantBest || len(steps) > 2 {
		t.Errorf("last is %d, best %d (lowest loss: %d), there are %v", last, best, wantBest, steps)
	}
}
