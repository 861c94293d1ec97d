package life

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// TestBest: what a validation that is the best so far writes. The losses and the checkpoints do not depend on it.
func TestBest(t *testing.T) {
	base := []string{"run.steps=6", "run.eval_every=1", "run.checkpoint_every=4", "optimizer.lr=0.01", "optimizer.decay=constant"}
	want := filepath.Join(t.TempDir(), "full")
	testrun.Train(t, want, append(base, "run.best=full")...)
	for _, tt := range []struct{ best, dtype string }{{"weights", "float32"}, {"none", "float32"}, {"weights", "bfloat16"}} {
		t.Run(tt.best+" in "+tt.dtype, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out")
			sets := append(slices.Clone(base), "run.best="+tt.best, "device.dtype="+tt.dtype)
			result, events := testrun.Train(t, out, append(sets, "run.steps=5")...)
			if tt.dtype == "float32" {
				result, _ = testrun.Train(t, out, sets...)
				testrun.SameFigures(t, want, out)
				testrun.SameState(t, want, out, 6)
			}
			pointer, err := os.Readlink(filepath.Join(out, "checkpoints", "best"))
			if tt.best == "none" {
				if !os.IsNotExist(err) {
					t.Errorf("best points to %s, %v", pointer, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if want := fmt.Sprintf("%08d", result.BestStep); !strings.HasSuffix(pointer, want) {
				t.Errorf("best points to %s, want step %s", pointer, want)
			}
			written := 0
			for _, e := range testrun.EventsOf[troupe.CheckpointEvent](events) {
				if e.Weights {
					written++
				}
			}
			if written == 0 {
				t.Error("no weights alone were written")
			}
			ckpt, err := checkpoint.OpenAt(filepath.Join(out, "checkpoints", "best"))
			if err != nil {
				t.Fatal(err)
			}
			if err := ckpt.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
