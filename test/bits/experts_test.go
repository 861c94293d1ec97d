package bits

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/safetensors"
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

// TestRoutersExact: biases that the loads of the whole batch move, jitter and the losses of routers have the same bits on 1, 2 and 4
// stages under several schedules, and in a run that goes on under another one; and with ZeRO or in expert groups those of plain replicas.
func TestRoutersExact(t *testing.T) {
	_, end, few := testrun.Span()
	sets := append(few, "model.family=deepseek_v3", "model.hidden=32", "model.experts=6", "model.experts_per_token=3",
		"model.expert_ffn=24",
		"model.n_group=3", "model.router_bias_update_rate=0.05", "model.z_loss_weight=0.01", "model.input_jitter_eps=0.1",
		"model.load_balancing_type=seq_aux_loss")
	want := filepath.Join(t.TempDir(), "out")
	_, events := testrun.Train(t, want, sets...)
	for _, e := range events {
		if step, ok := e.(troupe.StepEvent); ok && step.Step > 0 && !(step.Metrics["router_z_loss"] > 0) {
			t.Errorf("step %d reports %v", step.Step, step.Metrics)
		}
	}
	checkMoved(t, want, end)
	for i, l := range [][]string{{"pipeline.stages=4", "pipeline.schedule=gpipe"}, {"pipeline.stages=2", "pipeline.schedule=zb-h1"},
		{"pipeline.stages=2", "pipeline.schedule=dualpipev"}} {
		if !testrun.RaceDetector || i == 0 {
			sameUnder(t, want, l[len(l)-1], slices.Concat(sets, l))
		}
	}
	replicas := filepath.Join(t.TempDir(), "replicas")
	sets = append(sets, "parallel.data=2")
	testrun.Train(t, replicas, sets...)
	checkMoved(t, replicas, end)
	for i, how := range []string{"parallel.zero=1", "parallel.zero=3", "parallel.expert=2"} {
		if !testrun.RaceDetector || i == 0 {
			sameUnder(t, replicas, how, slices.Concat(sets, []string{how, "pipeline.stages=2"}))
		}
	}
}

// checkMoved makes sure that the biases of a run's last checkpoint are multiples of the rate, and that some moved.
func checkMoved(t *testing.T, out string, step int) {
	t.Helper()
	f, err := safetensors.Open(filepath.Join(out, "checkpoints", fmt.Sprintf("step-%08d", step), "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	seen, moved := 0, false
	for _, name := range f.Names() {
		if !strings.HasSuffix(name, ".e_score_correction_bias") {
			continue
		}
		seen++
		b, err := f.Bytes(name)
		if err != nil {
			t.Fatal(err)
		}
		values, err := safetensors.Float32s("F32", b)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range values {
			steps := float64(v) / 0.05
			moved = moved || steps != 0
			if math.Abs(steps-math.Round(steps)) > 1e-4 || math.Abs(steps) > float64(step)+0.1 {
				t.Errorf("%s has the bias %g", name, v)
			}
		}
	}
	if seen == 0 || !moved {
		t.Errorf("there are %d biases, moved %v", seen, moved)
	}
}
