package grid

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// TestGridContext: ranks that share the positions of sequences have the losses of one rank within the rounding of sums
// over ranks, and the same bits whenever they run, under every schedule and with ZeRO; a run goes on under another
// grid.
func TestGridContext(t *testing.T) {
	for i, c := range []struct {
		name string
		sets []string
		same []string // what changes no bit
	}{
		{"cp2", []string{"parallel.context=2"}, []string{"parallel.zero=1"}},
		{"cp4, llama", []string{"parallel.context=4", "model.family=llama", "model.kv_heads=2", "model.ffn=48"},
			[]string{"parallel.overlap=false"}},
		{"cp2 pp2, llama", []string{"parallel.context=2", "pipeline.stages=2", "pipeline.schedule=1f1b", "model.family=llama", "model.ffn=48",
			"model.tie_embeddings=false"}, []string{"pipeline.schedule=zb-h1"}},
		{"cp2 pp2 dp2", []string{"parallel.context=2", "parallel.data=2", "pipeline.stages=2", "pipeline.chunks=2",
			"pipeline.schedule=interleaved"}, []string{"pipeline.schedule=zb-v", "pipeline.post_validation=false"}},
		{"cp2 tp2 sequence", []string{"parallel.context=2", "parallel.tensor=2", "parallel.sequence=true"}, []string{"parallel.zero=1"}},
		{"cp2, tensor groups of other sizes, pp2, dp3, recomputed", []string{"parallel.context=2", "parallel.tensor=[1, 2]", "parallel.data=3",
			"pipeline.stages=2", "pipeline.schedule=1f1b", "pipeline.recompute=full"}, []string{"pipeline.schedule=gpipe"}},
		{"cp2 ZeRO-2", []string{"parallel.context=2", "parallel.zero=2", "model.hidden=128", "pipeline.chunks=4",
			"pipeline.schedule=breadth-first", "parallel.data=2"}, []string{"parallel.zero=1"}},
		{"cp2 ZeRO-3", []string{"parallel.context=2", "parallel.zero=3", "model.hidden=128", "model.layers=8", "parallel.order=dp-pp-cp-tp"},
			[]string{"parallel.zero=0"}},
		{"cp2 bfloat16", []string{"parallel.context=2", "pipeline.stages=2", "device.dtype=bfloat16", "pipeline.schedule=1f1b"},
			[]string{"pipeline.schedule=gpipe"}},
		{"cp2 tp2, a window of two blocks", []string{"parallel.context=2", "parallel.tensor=2", "model.family=mistral", "model.window=9",
			"model.ffn=48"}, []string{"parallel.overlap=false"}},
		{"cp2 pp2 dp2, experts", []string{"parallel.context=2", "parallel.data=2", "pipeline.stages=2", "model.family=qwen3_moe",
			"model.experts=4", "model.expert_ffn=24", "model.aux_loss_weight=0.5", "model.z_loss_weight=0.1", "model.input_jitter_eps=0.1"},
			[]string{"parallel.expert=4", "pipeline.schedule=zb-h1"}},
		{"cp4, experts, recomputed", []string{"parallel.context=4", "pipeline.recompute=full", "model.family=qwen2_moe", "model.experts=4",
			"model.expert_ffn=24", "model.aux_loss_weight=0.5", "model.load_balancing_type=seq_aux_loss"}, []string{"parallel.expert=2"}},
		{"cp2 tp2, experts, loads of the step", []string{"parallel.context=2", "parallel.tensor=2", "model.family=qwen3_moe",
			"model.experts=4", "model.expert_ffn=24", "model.aux_loss_weight=0.5", "model.load_balancing_type=global_aux_loss"},
			[]string{"parallel.expert=2"}},
		{"cp2 tp2 sequence, experts", []string{"parallel.context=2", "parallel.tensor=2", "parallel.sequence=true",
			"model.family=qwen3_moe", "model.experts=4", "model.expert_ffn=24", "model.aux_loss_weight=0.5",
			"model.z_loss_weight=0.1", "model.input_jitter_eps=0.1"},
			[]string{"parallel.overlap=false"}},
		{"cp4, a window of a block and a half", []string{"parallel.context=4", "model.family=mistral", "model.window=3", "model.ffn=48"},
			[]string{"parallel.overlap=false"}},
	} {
		if testrun.RaceDetector && i != 3 || !testrun.RaceDetector && !testrun.Long && i%2 == 1 {
			continue // races don't depend on the numbers; make check-grids runs all
		}
		t.Run(c.name, func(t *testing.T) {
			steps := testrun.Sometimes(4, 12)
			base := slices.Concat([]string{fmt.Sprint("run.steps=", steps), fmt.Sprint("run.eval_every=", steps/2),
				fmt.Sprint("run.checkpoint_every=", steps/2), "model.kv_heads=4"}, c.sets)
			var model []string // what is the model's
			for _, set := range base {
				if set[:6] == "model." || set[:4] == "run." || set[:7] == "device." {
					model = append(model, set)
				}
			}
			dir := t.TempDir()
			want, out, again := filepath.Join(dir, "want"), filepath.Join(dir, "out"), filepath.Join(dir, "again")
			testrun.Train(t, want, model...)
			testrun.Train(t, out, base...)
			relative := 1e-5
			if slices.Contains(base, "device.dtype=bfloat16") {
				relative = 1e-2
			}
			testrun.NearFiguresBy(t, want, out, relative, 10*relative)
			testrun.Train(t, again, append(slices.Clone(base), c.same...)...)
			testrun.SameFigures(t, out, again)
			testrun.SameState(t, out, again, steps)
			// On one rank from there on, and back.
			further := func(more int, sets []string) []string {
				return append(slices.Clone(sets), fmt.Sprint("run.steps=", steps+more))
			}
			testrun.Train(t, want, further(2, model)...)
			testrun.Train(t, again, further(2, model)...)
			testrun.NearFiguresBy(t, want, again, relative, 10*relative)
			testrun.Train(t, again, further(4, base)...)
			testrun.Train(t, want, further(4, model)...)
			testrun.NearFiguresBy(t, want, again, relative, 10*relative)
		})
	}
}
