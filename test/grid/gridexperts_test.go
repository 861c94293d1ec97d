package grid

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// TestGridExperts: tensor groups that divide experts have the losses of one rank within the rounding of sums over ranks, and the same
// bits under every schedule, with ZeRO and in expert groups. A run resumes on one rank, and under another size.
func TestGridExperts(t *testing.T) {
	for i, c := range []struct {
		name        string
		model, grid []string
		same        []string // what changes no bit
	}{
		{"tp2 sequence pp2, mixtral", []string{"model.family=mixtral", "model.ffn=48", "model.kv_heads=2", "model.experts=4"},
			[]string{"parallel.tensor=2", "parallel.sequence=true", "pipeline.stages=2", "pipeline.schedule=1f1b"},
			[]string{"pipeline.schedule=zb-h1"}},
		{"tp2 dp2, shared expert", []string{"model.family=qwen2_moe", "model.expert_ffn=12", "model.experts=6",
			"model.shared_expert_ffn=20", "model.experts_per_token=3", "model.aux_loss_weight=0.05", "model.z_loss_weight=0.01"},
			[]string{"parallel.tensor=2", "parallel.data=2"}, []string{"parallel.expert=2"}},
		{"tp 1 and 2, biases", []string{"model.family=gpt_oss", "model.ffn=16", "model.experts=4"},
			[]string{"parallel.tensor=[1, 2]", "pipeline.stages=2", "pipeline.schedule=1f1b"}, []string{"pipeline.schedule=gpipe"}},
		{"tp2 dp2 pp2, latent attention", []string{"model.family=deepseek_v3", "model.hidden=32", "model.expert_ffn=24", "model.n_group=4",
			"model.router_bias_update_rate=0.05", "model.input_jitter_eps=0.1"}, []string{"parallel.tensor=2", "parallel.sequence=true",
			"parallel.data=2", "pipeline.stages=2"}, []string{"parallel.expert=2", "pipeline.schedule=zb-h1"}},
		{"tp2 dp2, whole experts", []string{"model.family=qwen2_moe", "model.expert_ffn=12", "model.experts=8",
			"model.shared_expert_ffn=20", "model.aux_loss_weight=0.05", "model.z_loss_weight=0.01", "model.input_jitter_eps=0.1"},
			[]string{"parallel.tensor=2", "parallel.data=2", "parallel.expert_tensor=1"},
			[]string{"parallel.expert=4", "parallel.zero=1", "pipeline.stages=2"}},
		{"tp2 sequence, whole experts, biases", []string{"model.family=gpt_oss", "model.ffn=16", "model.experts=4"},
			[]string{"parallel.tensor=2", "parallel.sequence=true", "parallel.expert_tensor=1"},
			[]string{"parallel.expert=2", "pipeline.stages=2", "pipeline.schedule=zb-h1"}},
		{"tp2 cp2, whole experts, loads of the step", []string{"model.family=qwen3_moe", "model.expert_ffn=12", "model.experts=8",
			"model.aux_loss_weight=0.5", "model.load_balancing_type=global_aux_loss"}, []string{"parallel.tensor=2", "parallel.context=2",
			"parallel.expert_tensor=1"}, []string{"parallel.expert=4", "parallel.overlap=false"}},
		{"tp2, muon", []string{"model.family=qwen3_moe", "model.expert_ffn=12", "model.experts=4", "optimizer.name=muon"},
			[]string{"parallel.tensor=2", "parallel.data=2"}, []string{"parallel.zero=1", "parallel.overlap=false"}},
	} {
		if testrun.RaceDetector && i > 0 || i > 1 && c.name != "tp2 dp2, whole experts" && !testrun.Long {
			continue // make check-grids runs all
		}
		t.Run(c.name, func(t *testing.T) {
			const relative, norm = 1e-5, 1e-4
			steps := testrun.Sometimes(4, 12)
			keys := func(more int, sets ...[]string) []string {
				return slices.Concat(c.model, slices.Concat(sets...), []string{fmt.Sprint("run.steps=", steps+more),
					fmt.Sprint("run.eval_every=", steps/2), fmt.Sprint("run.checkpoint_every=", steps/2)})
			}
			dir := t.TempDir()
			want, out, again := filepath.Join(dir, "want"), filepath.Join(dir, "out"), filepath.Join(dir, "again")
			testrun.Train(t, want, keys(0)...)
			testrun.Train(t, out, keys(0, c.grid)...)
			testrun.NearFiguresBy(t, want, out, relative, norm)
			testrun.Train(t, again, keys(0, c.grid, c.same)...)
			testrun.SameFigures(t, out, again)
			testrun.SameState(t, out, again, steps)
			testrun.Train(t, want, keys(2)...)
			testrun.Train(t, again, keys(2)...)
			testrun.NearFiguresBy(t, want, again, relative, norm)
			testrun.Train(t, want, keys(4)...)
			testrun.Train(t, again, keys(4, []string{"parallel.tensor=4"})...)
			testrun.NearFiguresBy(t, want, again, relative, norm)
		})
	}
}
