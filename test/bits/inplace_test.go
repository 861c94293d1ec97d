package bits

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// TestSaveInPlace: where the copy for a checkpoint doesn't fit, the run says so, and writes the same
// files from the tensors themselves.
func TestSaveInPlace(t *testing.T) {
	for name, sets := range map[string][]string{
		"float32":          {"pipeline.stages=2"},
		"state in int8":    {"pipeline.stages=2", "optimizer.state_dtype=int8"},
		"frozen, bfloat16": {"pipeline.stages=2", "model.freeze=['embed', '0']", "device.dtype=bfloat16", "model.tie_embeddings=false"},
	} {
		t.Run(name, func(t *testing.T) {
			sets := append(sets, "run.checkpoint_every=2", "run.keep=0")
			copied := filepath.Join(t.TempDir(), "out")
			testrun.Train(t, copied, sets...)
			out := filepath.Join(t.TempDir(), "out")
			cfg := testrun.NewConfig(t, out, sets...)
			p, err := plan.Resolve(cfg, nil)
			if err != nil {
				t.Fatal(err)
			}
			need, err := p.AllTensorBytes()
			if err != nil {
				t.Fatal(err)
			}
			testrun.SetFreeMemory(t, need)
			run, err := troupe.Start(context.Background(), cfg, troupe.Options{})
			if err != nil {
				t.Fatal(err)
			}
			said := false
			for e := range run.Events() {
				if w, ok := e.(troupe.WarningEvent); ok && strings.Contains(w.Text, "training waits for them") {
					said = true
				}
			}
			if _, err := run.Wait(); err != nil || !said {
				t.Fatalf("said: %v, error %v", said, err)
			}
			for _, step := range []int{2, 4, 6} {
				for _, file := range []string{"model.safetensors", "optimizer.safetensors"} {
					if testrun.Read(t, filepath.Join(testrun.StepDir(out, step), file)) != testrun.Read(t,
						filepath.Join(testrun.StepDir(copied, step), file)) {
						t.Errorf("step %d: %s is another one", step, file)
					}
				}
			}
			testrun.SetFreeMemory(t, need-1)
			if _, err := troupe.Start(context.Background(), testrun.NewConfig(t, filepath.Join(t.TempDir(), "out"), sets...),
				troupe.Options{}); !errors.Is(err, troupe.ErrMemory) {
				t.Errorf("one byte less: %v", err)
			}
		})
	}
}
