package life

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/testing/crashfs"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// TestPowerFailure: whatever the power failure leaves, the newest checkpoint's steps
// have their lines in metrics.jsonl: a run that goes on from it does not write them
// again.
func TestPowerFailure(t *testing.T) {
	const seeds = 6
	sets := []string{"run.checkpoint_every=1", "run.eval_every=0", "run.keep=2"}
	ops := 0
	crashAt := func(t *testing.T, k int) {
		out := t.TempDir()
		fsys, err := crashfs.New(out)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = fsys.Close() }()
		if k > 0 {
			fsys.CrashAt(k)
		}
		testrun.SetFS(t, func(checkpoint.FS) checkpoint.FS { return fsys })
		run, err := troupe.Start(context.Background(), testrun.NewConfig(t, out, sets...), troupe.Options{})
		if err == nil {
			_, err = run.Wait()
		}
		if k > 0 && !errors.Is(err, crashfs.ErrCrashed) || k == 0 && err != nil {
			t.Fatalf("a crash at operation %d: %v", k, err)
		}
		ops = max(ops, fsys.Ops())
		for seed := range uint64(seeds) {
			left := t.TempDir()
			if err := fsys.Crash(left, seed); err != nil {
				t.Fatal(err)
			}
			newest, damaged, err := testrun.OpenStore(t, left).Newest()
			if errors.Is(err, checkpoint.ErrNone) {
				continue
			}
			if err != nil || len(damaged) > 0 {
				t.Fatalf("crash %d, seed %d: %v, %v", k, seed, damaged, err)
			}
			step := newest.Step()
			if err := newest.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(filepath.Join(left, "metrics.jsonl")); err != nil {
				t.Fatalf("crash %d, seed %d: there is the checkpoint of step %d, but %v", k, seed, step, err)
			}
			lines := testrun.Records(t, left)
			if len(lines) == 0 || lines[len(lines)-1].Step < step {
				t.Fatalf("crash %d, seed %d: there is the checkpoint of step %d, and metrics of %d lines", k, seed, step, len(lines))
			}
		}
	}
	crashAt(t, 0)
	for k := 20; k < ops-1; k += 31 {
		crashAt(t, k)
	}
}
