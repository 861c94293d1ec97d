package bits

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// TestExpertsReplicas: replicas of a model with experts have the bits of plain replicas with each level of ZeRO, and
// every step reports what the routers did.
func TestExpertsReplicas(t *testing.T) {
	_, end, few := testrun.Span()
	sets := append(few, "model.family=qwen3_moe", "model.hidden=32", "model.experts=5", "model.experts_per_token=3", "model.expert_ffn=40",
		"model.aux_loss_weight=0.05", "parallel.data=2")
	want := filepath.Join(t.TempDir(), "out")
	_, events := testrun.Train(t, want, sets...)
	steps := 0
	for _, e := range events {
		step, ok := e.(troupe.StepEvent)
		if !ok || step.Step == 0 {
			continue
		}
		steps++
		m := step.Metrics
		aux, entropy, spread, peak := m["aux_loss"], m["router_entropy"], m["expert_load_cv"], m["expert_load_max_ratio"]
		if !(aux > 2.5 && aux < 5 && entropy > 0 && entropy < 1.61 && spread >= 0 && spread < 1 && peak >= 1 && peak <= 5./3) {
			t.Errorf("step %d reports %v", step.Step, m)
		}
	}
	if steps != end {
		t.Errorf("there are %d steps, want %d", steps, end)
	}
	for i, zero := range []string{"parallel.zero=1", "parallel.zero=2", "parallel.zero=3"} {
		if testrun.RaceDetector && i > 0 {
			continue
		}
		sameUnder(t, want, zero, slices.Concat(sets, []string{zero, "pipeline.stages=2", "pipeline.schedule=1f1b"}))
	}
}
