package bits

import (
	"path/filepath"
	"testing"

	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// TestPatience: a run ends when so many validations in a row were no better, with a checkpoint and
// the best one named; the same command finds it done, and more patience goes on, to the bits of
// a run that was patient from the start.
func TestPatience(t *testing.T) {
	// So high a rate that the loss gets worse after some steps.
	sets := []string{"optimizer.lr=3", "optimizer.clip_norm=0", "run.eval_every=1", "run.steps=12", "run.checkpoint_every=0"}
	want := filepath.Join(t.TempDir(), "want")
	testrun.Train(t, want, sets...)
	out := filepath.Join(t.TempDir(), "out")
	result, _ := testrun.Train(t, out, append(sets, "run.patience=2")...)
	if !result.Early || result.Stopped || result.Step != result.BestStep+2 || result.Step >= 12 {
		t.Fatalf("it ended with %+v, want an early end two steps after the best one", result)
	}
	again, _ := testrun.Train(t, out, append(sets, "run.patience=2")...)
	if !again.Early || again.Step != result.Step {
		t.Errorf("once more it ended with %+v, want it to be done at step %d", again, result.Step)
	}
	on, _ := testrun.Train(t, out, sets...)
	if on.Early || on.Step != 12 {
		t.Errorf("without patience it ended with %+v", on)
	}
	testrun.SameState(t, want, out, 12)
}
