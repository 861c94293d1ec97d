package troupe_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
)

// TestStoredWithoutEffect: a run of an earlier version, which let keys without effect
// stand, goes on without them, and can be evaluated.
func TestStoredWithoutEffect(t *testing.T) {
	out := rewind(t, trained(t), 3)
	stored := strings.NewReplacer("momentum = 0.9\n", "momentum = 0.5\n", "rope_theta = 10000.0\n", "rope_theta = 5e5\n").Replace(read(t, filepath.Join(out, "config.toml")))
	if !strings.Contains(stored, "momentum = 0.5\n") || !strings.Contains(stored, "rope_theta = 5e5\n") {
		t.Fatalf("the stored configuration has no such keys:\n%s", stored)
	}
	write(t, filepath.Join(out, "config.toml"), stored)
	rewrite(t, out, 3, func(files map[string][]byte) { files["config.toml"] = []byte(stored) })
	if _, err := troupe.Evaluate(t.Context(), troupe.EvalOptions{ModelOptions: troupe.ModelOptions{From: out}}); err != nil {
		t.Error(err)
	}
	run := start(t, newConfig(t, out))
	if result, _ := finish(t, run); result.Step != 6 || run.Info().ResumedAt != 3 {
		t.Errorf("it went on from step %d to step %d, want 3 and 6", run.Info().ResumedAt, result.Step)
	}
}
