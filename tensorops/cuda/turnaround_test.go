//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/tensorops/cuda/internal/count"
)

// TestTurnarounds: once in a step a GPU has nothing to do until the host has heard of it: where the gradient's
// norm decides about the update. The device is slower than the host there, and does nothing else. All kernels of a step are
// in the table that counts what they move.
func TestTurnarounds(t *testing.T) {
	for name, sets := range map[string][]string{
		"1 microbatch, bfloat16": {"batch.microbatch=4", "device.dtype=bfloat16"},
		"4 microbatches, llama":  {"batch.microbatch=1", "model.family=llama", "model.dropout=0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			l := useStandIn(t)
			t.Cleanup(l.Reset)
			l.Hollow(1)
			l.LogBegin()
			dir := t.TempDir()
			text := filepath.Join(dir, "text")
			if err := os.WriteFile(text, []byte(strings.Repeat("The stages pass their activations on. ", 40)), 0o600); err != nil {
				t.Fatal(err)
			}
			const settled, last = 2, 5 // steps: graphs are made up to the first of these
			cfg, err := config.Parse("turnarounds", fmt.Appendf(nil, `
run = {steps = %d, eval_batches = 1, eval_every = 0, checkpoint_every = 0, stats_every = 0, stall_after_s = 0, out = %q}
data = {train = [%q]}
model = {layers = 2, hidden = 16, heads = 2, context = 8, vocab = 256}
batch = {sequences = 4}
device = {kind = "cuda"}
`, last, filepath.Join(dir, "out"), text), sets, os.LookupEnv)
			if err != nil {
				t.Fatal(err)
			}
			l.Slow(20_000)
			run, err := troupe.Start(t.Context(), cfg, troupe.Options{})
			if err != nil {
				t.Fatal(err)
			}
			steps := count.Steps{Log: count.Log{Name: l.Kernel}}
			for e := range run.Events() {
				e, ok := e.(troupe.StepEvent)
				if !ok {
					continue
				}
				if e.Step == last { // what follows is no step's
					l.Slow(0)
				}
				if err := steps.Take(l.Log()); err != nil {
					t.Error(err)
				}
			}
			if _, err := run.Wait(); err != nil {
				t.Fatal(err)
			}
			// A host that is kept from its work, as on a busy machine, looks like one that waits: the least counts. And a
			// step whose event comes late has what is the next one's: from the first on there is no fewer than one for each.
			if len(steps.All) < last {
				t.Fatalf("%d steps", len(steps.All))
			}
			least, sum := steps.All[settled].Turnarounds, 0
			for i, s := range steps.All[:last-1] {
				if sum += s.Turnarounds; i >= settled {
					least = min(least, s.Turnarounds)
				}
			}
			if n := last - 1; least > 1 || sum < n {
				t.Errorf("at least %d turnarounds a step, %d in %d steps, want 1 in each", least, sum, n)
			}
		})
	}
}
