package troupe

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/troupe-ml/troupe/config"
)

// TestSnapshotBits: a snapshot of a run whose ranks have slices of the weights has those of the checkpoint of its step, to
// the bit.
func TestSnapshotBits(t *testing.T) {
	text := `
run = {steps = 6, checkpoint_every = 1, keep = 0, eval_every = 0}
model = {family = "llama", layers = 4, hidden = 32, heads = 4, kv_heads = 2, context = 16, tie_embeddings = false}
data = {train = ["testdata/troupe.txt"]}
batch = {sequences = 4, microbatch = 1}
`
	for i, sets := range [][]string{
		{"parallel.tensor=2"},
		{"parallel.tensor=4", "model.family=gpt2", "model.kv_heads=4", "model.tie_embeddings=true"},
		{"parallel.tensor=[1, 2]", "parallel.data=2", "pipeline.stages=2", "pipeline.schedule=1f1b", "parallel.zero=1"},
		{"parallel.tensor=2", "parallel.data=2", "parallel.zero=3", "model.hidden=192", "model.layers=12"},
	} {
		if RaceDetector && i != 2 {
			continue // races don't depend on the numbers
		}
		t.Run(fmt.Sprint(sets), func(t *testing.T) {
			out := t.TempDir()
			cfg, err := config.Parse("run.toml", []byte(text), append(sets, fmt.Sprintf("run.out=%q", out)), nil)
			if err != nil {
				t.Fatal(err)
			}
			run, err := Start(t.Context(), cfg, Options{})
			if err != nil {
				t.Fatal(err)
			}
			var s *Snapshot
			for e := range run.Events() {
				if e, ok := e.(StepEvent); ok && e.Step >= 2 && s == nil {
					if s, err = run.Snapshot(t.Context(), SnapshotOptions{}); err != nil {
						t.Error(err)
					}
				}
			}
			if _, err := run.Wait(); err != nil || s == nil {
				t.Fatal(err)
			}
			defer s.Close() //nolint:errcheck // nothing but memory
			if s.w.dir != "" {
				t.Errorf("the snapshot of step %d was read from %s", s.w.step, s.w.dir)
			}
			source := snapshotSource{dir: filepath.Join(out, "checkpoints", fmt.Sprintf("step-%08d", s.w.step)), device: cfg.Device}
			want, err := source.read()
			if err != nil {
				t.Fatal(err)
			}
			defer want.model.Close() //nolint:errcheck // nothing but memory
			for _, p := range want.model.Shape.Params {
				if !slices.Equal(s.w.model.Weights.HostWeight(p.Index), want.model.Weights.HostWeight(p.Index)) {
					t.Errorf("%s of the snapshot of step %d is not the checkpoint's", p.Name, s.w.step)
				}
			}
		})
	}
}
