package bits

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// TestStoredWithoutEffect: a run of an earlier version, which let keys without effect
// stand, goes on without them, and can be evaluated.
func TestStoredWithoutEffect(t *testing.T) {
	out := testrun.Rewind(t, testrun.Trained(t), 3)
	stored := strings.NewReplacer("momentum = 0.9\n", "momentum = 0.5\n", "rope_theta = 10000.0\n",
		"rope_theta = 5e5\n").Replace(testrun.Read(t, filepath.Join(out, "config.toml")))
	if !strings.Contains(stored, "momentum = 0.5\n") || !strings.Contains(stored, "rope_theta = 5e5\n") {
		t.Fatalf("the stored configuration has no such keys:\n%s", stored)
	}
	testrun.Write(t, filepath.Join(out, "config.toml"), stored)
	testrun.Rewrite(t, out, 3, func(files map[string][]byte) { files["config.toml"] = []byte(stored) })
	if _, err := troupe.Evaluate(t.Context(), troupe.EvalOptions{ModelOptions: troupe.ModelOptions{From: out}}); err != nil {
		t.Error(err)
	}
	run := testrun.Start(t, testrun.NewConfig(t, out))
	if result, _ := testrun.Finish(t, run); result.Step != 6 || run.Info().ResumedAt != 3 {
		t.Errorf("it went on from step %d to step %d, want 3 and 6", run.Info().ResumedAt, result.Step)
	}
}
