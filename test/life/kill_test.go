package life

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
	"github.com/troupe-ml/troupe/telemetry"
)

// childEnv, when it is set, makes the test binary train smallRun with the keys
// that it holds, one a line, instead of running tests.
const childEnv = "TROUPE_TEST_CHILD"

func trainAsChild(sets []string) (exitCode int) {
	if err := limitFiles(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	cfg, err := config.Parse("small.toml", []byte(testrun.SmallRun), sets, nil)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	run, err := troupe.Start(context.Background(), cfg, troupe.Options{})
	if err == nil {
		_, err = run.Wait()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func child(out string, sets ...string) (*exec.Cmd, *strings.Builder) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+strings.Join(append(sets, "run.out="+out), "\n"))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	return cmd, &stderr
}

// TestKill ends a run with SIGKILL, again and again, soon after a step's line
// was written: in the step after it, or while a checkpoint is being written. The
// run that is started again each time, under another layout, must give what an
// undisturbed one gives.
func TestKill(t *testing.T) {
	for _, tt := range []struct {
		name string
		sets []string
	}{
		{"a checkpoint every step", []string{"run.checkpoint_every=1", "run.keep=2"}},
		{"a checkpoint every 2 steps", []string{"run.checkpoint_every=2", "run.keep=1", "model.family=llama", "run.eval_every=5"}},
		{"muon", []string{"run.checkpoint_every=1", "run.keep=2", "optimizer.name=muon"}},
		{"muon, shared by replicas", []string{"run.checkpoint_every=1", "run.keep=2", "optimizer.name=muon", "parallel.data=2",
			"parallel.zero=1"}},
		{"preferences", []string{"run.checkpoint_every=1", "run.keep=2", "preference.loss=dpo", "data.format=documents",
			"batch.microbatch=2", "data.train=" + testrun.AnswersOf(t, 60, false)}},
		{"state in int8", []string{"run.checkpoint_every=1", "run.keep=2", "optimizer.state_dtype=int8"}},
		{"documents, and frozen layers", []string{"run.checkpoint_every=1", "run.keep=2", "data.train=" + testrun.PairsOf(t, 120),
			"data.format=documents",
			"model.family=llama", "model.tie_embeddings=false", "device.dtype=bfloat16", `model.freeze=["embed", "0-1"]`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			sets := slices.Concat(tt.sets, []string{"run.steps=20"})
			want := filepath.Join(t.TempDir(), "want")
			testrun.Train(t, want, sets...)

			out := filepath.Join(t.TempDir(), "out")
			kills := 0
			for i, after := range []int{0, 1, 3, 4, 7, 8, 11, 14, 17} {
				pause := time.Duration(i*i%7) * time.Millisecond // somewhere else each time
				stages := fmt.Sprintf("pipeline.stages=%d", 1+i%3)
				if killAfter(t, after, pause, out, append(sets, stages)...) {
					kills++
				}
			}
			if kills < 5 {
				t.Fatalf("only %d runs could be killed before they ended", kills)
			}
			cmd, stderr := child(out, sets...)
			if err := cmd.Run(); err != nil {
				t.Fatalf("the last run: %v\n%s", err, stderr)
			}
			testrun.SameFigures(t, want, out)
			testrun.SameState(t, want, out, 20)
			noneLeft(t, out)
		})
	}
}

// killAfter starts a run and kills it when metrics.jsonl has the line of a step;
// false when the run ended by itself before.
func killAfter(t *testing.T, step int, pause time.Duration, out string, sets ...string) bool {
	t.Helper()
	cmd, stderr := child(out, sets...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		all, err := telemetry.Read(filepath.Join(out, "metrics.jsonl"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Error(err) // and end the child below
		}
		if t.Failed() || len(all) > 0 && all[len(all)-1].Step >= step {
			break
		}
		select {
		case err := <-ended:
			if err != nil {
				t.Fatalf("the run failed by itself: %v\n%s", err, stderr)
			}
			return false
		case <-time.After(time.Millisecond):
		}
	}
	time.Sleep(pause)
	if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
	return <-ended != nil
}

// noneLeft makes sure that nothing is left of files that were being written.
func noneLeft(t *testing.T, out string) {
	t.Helper()
	for _, pattern := range []string{".tmp-*", "checkpoints/.tmp-*", "checkpoints/*.replaced"} {
		left, err := filepath.Glob(filepath.Join(out, pattern))
		if err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	}
}
