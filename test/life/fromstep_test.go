package life

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/run/trainstate"
	"github.com/troupe-ml/troupe/internal/testing/crashfs"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// from goes on from the checkpoint of a step.
func from(t *testing.T, out string, step int, sets ...string) (troupe.Result, []troupe.Event) {
	t.Helper()
	run, err := troupe.Start(context.Background(), testrun.NewConfig(t, out, sets...), troupe.Options{FromStep: step})
	if err != nil {
		t.Fatal(err)
	}
	return testrun.Finish(t, run)
}

// TestFromStep: a run goes back to a step on a person's word. What is newer is kept
// aside, byte for byte, and the way back is recorded; the same command given again, as a
// supervisor gives it, goes on.
func TestFromStep(t *testing.T) {
	want := testrun.Trained(t, "run.checkpoint_every=2", "optimizer.decay=constant", "run.best=full")
	sets := []string{"run.checkpoint_every=2", "optimizer.decay=constant", "run.best=full"}
	out := testrun.CopyTree(t, want)
	metrics, newest := testrun.Read(t, filepath.Join(out, "metrics.jsonl")), testrun.Tree(t, testrun.StepDir(out, 6))

	_, events := from(t, out, 2, sets...)
	w := testrun.EventsOf[troupe.WarningEvent](events)
	if len(w) != 3+1 || !strings.Contains(w[0].Text, testrun.StepDir(out, 6)+".superseded") || !strings.Contains(w[3].Text, "from step 2") {
		t.Errorf("warnings %v", w)
	}
	if got := testrun.Tree(t, testrun.StepDir(out, 6)+".superseded"); got != newest {
		t.Errorf("what was set aside had\n%sit has\n%s", newest, got)
	}
	if got := testrun.Read(t, filepath.Join(out, "metrics.jsonl.superseded")); got != metrics {
		t.Errorf("the metrics kept aside are\n%s", got)
	}
	testrun.SameFigures(t, want, out)
	testrun.SameState(t, want, out, 6)
	d := testrun.TrainerState(t, out, 6).Decisions
	if len(d) != 1 || d[0].Kind != trainstate.FromStep || d[0].Step != 2 || !strings.Contains(d[0].Detail, "6, 4, 3") {
		t.Errorf("recorded: %+v", d)
	}

	before := testrun.Tree(t, filepath.Join(out, "checkpoints"))
	_, events = from(t, out, 2, sets...)
	if w := testrun.EventsOf[troupe.WarningEvent](events); len(w) != 1 ||
		!strings.Contains(w[0].Text, "went back to step 2 on request and has reached step 6") {
		t.Errorf("warnings %v", w)
	}
	if after := testrun.Tree(t, filepath.Join(out, "checkpoints")); after != before {
		t.Errorf("the checkpoints were\n%sthey are\n%s", before, after)
	}

	// To another step once more: what is in the way is numbered.
	from(t, out, 4, sets...)
	if !slices.ContainsFunc(list(t, filepath.Join(out, "checkpoints")),
		func(name string) bool { return name == "step-00000006.superseded-2" }) {
		t.Errorf("the checkpoints are %v", list(t, filepath.Join(out, "checkpoints")))
	}
	if d := testrun.TrainerState(t, out, 6).Decisions; len(d) != 2 || d[1].Step != 4 {
		t.Errorf("recorded: %+v", d)
	}
}

func list(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestFromStepPastUnreadable: what can't be read stays as it is, aside.
func TestFromStepPastUnreadable(t *testing.T) {
	out := testrun.Trained(t)
	manifest := filepath.Join(testrun.StepDir(out, 6), "manifest.json")
	testrun.Write(t, manifest, strings.Replace(testrun.Read(t, manifest), `"format_version": 1`, `"format_version": 2`, 1))
	newer := testrun.Tree(t, testrun.StepDir(out, 6))
	testrun.Refused(t, testrun.NewConfig(t, out), troupe.Options{}, checkpoint.ErrVersion, "--from-step")
	from(t, out, 3)
	if got := testrun.Tree(t, testrun.StepDir(out, 6)+".superseded"); got != newer {
		t.Errorf("what was set aside had\n%sit has\n%s", newer, got)
	}
}

// TestFromStepRefuses a step without a checkpoint, and changes nothing.
func TestFromStepRefuses(t *testing.T) {
	out := testrun.Trained(t)
	before := testrun.Tree(t, out)
	testrun.Refused(t, testrun.NewConfig(t, out), troupe.Options{FromStep: 5}, checkpoint.ErrNone, "step 5", "3", "6")
	testrun.Refused(t, testrun.NewConfig(t, out, "run.seed=8"), troupe.Options{FromStep: 3}, troupe.ErrOutput, "run.seed")
	if after := testrun.Tree(t, out); after != before {
		t.Errorf("the folder had\n%sit has\n%s", before, after)
	}
	testrun.Refused(t, testrun.NewConfig(t, filepath.Join(t.TempDir(), "new")), troupe.Options{FromStep: 5}, checkpoint.ErrNone, "step 5")
}

// TestFromStepCrash cuts the way back short at every operation, by a kill or a power
// failure. The same command obeys once, loses nothing, and then goes on.
func TestFromStepCrash(t *testing.T) {
	sets := []string{"run.checkpoint_every=2", "run.eval_every=2", "optimizer.decay=constant"}
	want := testrun.Trained(t, sets...)
	newest, metrics := testrun.Tree(t, testrun.StepDir(want, 6)), testrun.Read(t, filepath.Join(want, "metrics.jsonl"))
	crash := func(t *testing.T, out string, at int) (*crashfs.FS, error) {
		fsys, err := crashfs.New(out)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = fsys.Close() })
		fsys.CrashAt(at)
		testrun.SetFS(t, func(checkpoint.FS) checkpoint.FS { return fsys })
		run, err := troupe.Start(context.Background(), testrun.NewConfig(t, out, sets...), troupe.Options{FromStep: 2})
		if err == nil {
			_, err = run.Wait()
		}
		testrun.SetFS(t, func(fsys checkpoint.FS) checkpoint.FS { return fsys })
		return fsys, err
	}
	again := func(t *testing.T, out string) {
		from(t, out, 2, sets...)
		testrun.SameFigures(t, want, out)
		testrun.SameState(t, want, out, 6)
		d := testrun.TrainerState(t, out, 6).Decisions
		if len(d) == 0 || d[len(d)-1].Kind != trainstate.FromStep || d[len(d)-1].Step != 2 {
			t.Errorf("recorded: %+v", d)
		}
		var kept bool
		for _, name := range list(t, filepath.Join(out, "checkpoints")) {
			kept = kept || strings.HasPrefix(name, "step-00000006.superseded") && testrun.Tree(t, filepath.Join(out, "checkpoints", name)) == newest
		}
		for _, name := range list(t, out) {
			kept = kept && (name != "metrics.jsonl.superseded" || testrun.Read(t, filepath.Join(out, name)) == metrics)
		}
		if !kept {
			t.Errorf("what was set aside is lost: %v, %v", list(t, out), list(t, filepath.Join(out, "checkpoints")))
		}
		before := testrun.Tree(t, filepath.Join(out, "checkpoints"))
		from(t, out, 2, sets...)
		if after := testrun.Tree(t, filepath.Join(out, "checkpoints")); after != before {
			t.Errorf("the checkpoints were\n%sthey are\n%s", before, after)
		}
	}
	between := testrun.Sometimes(23, 5) // operations, to save time
	for k := 0; ; k += between {
		out := testrun.CopyTree(t, want)
		fsys, err := crash(t, out, k)
		if err == nil {
			break
		}
		if !errors.Is(err, crashfs.ErrCrashed) {
			t.Fatal(err)
		}
		failed := t.Failed()
		again(t, out)
		left := t.TempDir()
		if err := fsys.Crash(left, uint64(k)); err != nil {
			t.Fatal(err)
		}
		testrun.Write(t, filepath.Join(left, ".lock"), "")
		again(t, left)
		if t.Failed() && !failed {
			t.Fatalf("a crash at operation %d", k)
		}
	}
}

// TestFullDiskAtStart: whatever operation of a start fails, a *SetupError says that
// nothing was changed, and nothing was; else the command can be given again.
func TestFullDiskAtStart(t *testing.T) {
	sets := []string{"run.checkpoint_every=2", "optimizer.decay=constant", "run.best=full"}
	want := testrun.Trained(t, sets...)
	before := testrun.Tree(t, want)
	changed := 0
	for k, reached := 0, true; reached; k += testrun.Sometimes(3, 1) {
		out := testrun.CopyTree(t, want)
		fsys, err := crashfs.New(out)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = fsys.Close() })
		fsys.FailAt(k, syscall.ENOSPC)
		testrun.SetFS(t, func(checkpoint.FS) checkpoint.FS { return fsys })
		run, err := troupe.Start(context.Background(), testrun.NewConfig(t, out, sets...), troupe.Options{FromStep: 2})
		reached = fsys.Ops() > k
		testrun.SetFS(t, func(fsys checkpoint.FS) checkpoint.FS { return fsys })
		if err == nil {
			run.Kill()
			_, _ = run.Wait()
			continue
		}
		if setup := new(troupe.SetupError); errors.As(err, &setup) {
			if after := testrun.Tree(t, out); after != before {
				t.Errorf("operation %d: %v, but the folder had\n%sit has\n%s", k, err, before, after)
			}
			continue
		}
		if changed++; !errors.Is(err, checkpoint.ErrNoSpace) {
			t.Errorf("operation %d: %v", k, err)
		}
		if changed%testrun.Sometimes(4, 5) == 0 {
			from(t, out, 2, sets...)
			testrun.SameState(t, want, out, 6)
		}
	}
	if changed < testrun.Sometimes(7, 20) {
		t.Errorf("only %d operations failed after a change", changed)
	}
}
