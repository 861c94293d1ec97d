package bits

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// TestGlobalBalanceExact: a balance loss over the step's tokens has the same bits on 1, 2 and 4 stages under several schedules, recomputed,
// and in a run that resumes under another layout. With ZeRO, in expert groups and with updates before the norm it has those of plain
// replicas. The loads of a step begin with it: a validation between two steps changes nothing.
func TestGlobalBalanceExact(t *testing.T) {
	middle, end, few := testrun.Span()
	sets := append(few, "model.family=qwen3_moe", "model.hidden=32", "model.experts=6", "model.experts_per_token=2", "model.expert_ffn=24",
		"model.aux_loss_weight=0.3", "model.load_balancing_type=global_aux_loss")
	want := filepath.Join(t.TempDir(), "want")
	_, events := testrun.Train(t, want, sets...)
	for _, e := range events {
		if step, ok := e.(troupe.StepEvent); ok && step.Step > 0 && !(step.Metrics["aux_loss"] > 1.5 && step.Metrics["aux_loss"] < 6) {
			t.Errorf("step %d reports %v", step.Step, step.Metrics)
		}
	}
	for i, l := range []struct {
		name string
		sets []string
	}{
		{"4 stages, gpipe", []string{"pipeline.stages=4", "pipeline.schedule=gpipe"}},
		{"zb-h1, recomputed", []string{"pipeline.stages=2", "pipeline.schedule=zb-h1", "pipeline.recompute=full"}},
		{"dualpipev", []string{"pipeline.stages=2", "pipeline.schedule=dualpipev"}},
		{"zb-v", []string{"pipeline.stages=2", "pipeline.chunks=2", "pipeline.schedule=zb-v"}},
	} {
		if testrun.RaceDetector && i > 0 || i > 2 && !testrun.Long {
			continue
		}
		sameUnder(t, want, l.name, slices.Concat(sets, l.sets))
	}
	again := testrun.Rewind(t, want, middle)
	testrun.Train(t, again, slices.Concat(sets, []string{"pipeline.stages=2", "pipeline.schedule=1f1b"})...)
	testrun.SameFigures(t, want, again)
	testrun.SameState(t, want, again, end)

	replicas := filepath.Join(t.TempDir(), "replicas")
	sets = append(sets, "parallel.data=2")
	testrun.Train(t, replicas, sets...)
	for i, l := range []struct {
		name string
		sets []string
	}{
		{"expert groups", []string{"parallel.expert=2", "pipeline.stages=2", "pipeline.schedule=1f1b", "parallel.expert_overlap=true"}},
		{"zero 3", []string{"parallel.zero=3", "pipeline.stages=2"}},
		{"updates before the norm", []string{"pipeline.stages=2", "pipeline.schedule=zb-h2", "pipeline.post_validation=true"}},
		{"collectives at once", []string{"parallel.overlap=false"}},
	} {
		if testrun.RaceDetector && i > 0 || i > 2 && !testrun.Long {
			continue
		}
		sameUnder(t, replicas, l.name, slices.Concat(sets, l.sets))
	}
}
