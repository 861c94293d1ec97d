package bits

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/troupe-ml/troupe/internal/testing/testrun"
	"github.com/troupe-ml/troupe/stages"
)

// precisions are the types to compute in, with those of the residual stream.
var precisions = map[string][]string{
	"":                             nil,
	", bfloat16":                   {"device.dtype=bfloat16"},
	", bfloat16, residual float32": {"device.dtype=bfloat16", "device.residual=float32"},
}

// layouts spread the same training in every way.
var layouts = []struct {
	name string
	sets []string
}{
	{"1 thread", []string{"device.threads=1"}},
	{"2 threads", []string{"device.threads=2"}},
	{"2 stages 1f1b", []string{"pipeline.stages=2"}},
	{"4 stages gpipe", []string{"pipeline.stages=4", "pipeline.schedule=gpipe"}},
	{"interleaved, group 2", []string{"pipeline.stages=2", "pipeline.chunks=2", "pipeline.microbatch_group_size=2"}},
	{"interleaved, group 4, 1 thread", []string{"pipeline.stages=2", "pipeline.chunks=2", "pipeline.microbatch_group_size=4",
		"device.threads=1"}},
	{"uneven stages", []string{"pipeline.stages=3", "pipeline.layout=Et|tt|tL"}},
	{"an empty stage", []string{"pipeline.stages=3", "pipeline.layout=Et*3||tL"}},
	{"embedding and loss alone", []string{"pipeline.stages=3", "pipeline.layout=E|t*4|L"}},
	{"eager 1f1b", []string{"pipeline.stages=3", "pipeline.schedule=eager-1f1b"}},
	{"breadth-first", []string{"pipeline.stages=2", "pipeline.chunks=2", "pipeline.schedule=breadth-first"}},
	{"zb-h1", []string{"pipeline.stages=3", "pipeline.schedule=zb-h1"}},
	{"zb-h2", []string{"pipeline.stages=2", "pipeline.schedule=zb-h2"}},
	{"zb1p", []string{"pipeline.stages=2", "pipeline.chunks=2", "pipeline.schedule=zb1p"}},
	{"zb-v", []string{"pipeline.stages=2", "pipeline.schedule=zb-v"}},
	{"v-half", []string{"pipeline.stages=2", "pipeline.schedule=v-half", "device.threads=1"}},
	{"v-min", []string{"pipeline.stages=3", "pipeline.schedule=v-min"}},
	{"dualpipev", []string{"pipeline.stages=2", "pipeline.schedule=dualpipev"}},
	{"u-shape", []string{"pipeline.stages=3", "pipeline.schedule=u-shape"}},
	{"auto", []string{"pipeline.stages=2", "pipeline.chunks=2", "pipeline.schedule=auto", "pipeline.max_in_flight=5"}},
	{"zb-v, recompute partial", []string{"pipeline.stages=2", "pipeline.schedule=zb-v", "pipeline.recompute=partial",
		"pipeline.recompute_keep=1"}},
	{"auto, bound", []string{"pipeline.stages=2", "pipeline.chunks=2", "pipeline.schedule=auto", "pipeline.max_in_flight=5"}},
	{"head's weights deferred", []string{"pipeline.stages=3", "pipeline.defer_weights=3"}},
	{"last stage's weights deferred", []string{"pipeline.stages=2", "pipeline.schedule=zb-h1", "pipeline.defer_weights=2"}},
	{"recompute full", []string{"pipeline.stages=2", "pipeline.recompute=full"}},
	{"recompute full, 1 stage", []string{"pipeline.recompute=full"}},
	{"recompute partial", []string{"pipeline.stages=2", "pipeline.chunks=2", "pipeline.recompute=partial", "pipeline.recompute_keep=2"}},
}

// TestExact: the losses, the gradient norms, the weights and the optimizer's
// state are the same to the last bit under every layout, and in a run that goes
// on from its middle under another one.
func TestExact(t *testing.T) {
	for name, family := range testrun.Families {
		for precision, types := range precisions {
			t.Run(name+precision, func(t *testing.T) {
				if testrun.RaceDetector && precision != "" {
					t.Skip("races don't depend on the numbers")
				}
				_, _, few := testrun.Span()
				sets := slices.Concat(family, types, few)
				want := filepath.Join(t.TempDir(), "out")
				testrun.Train(t, want, sets...) // 1 stage
				checkClipped(t, want)
				for i, l := range layouts {
					// Each layout is run by one family at least; make check-bits runs all by all.
					if testrun.RaceDetector && i%6 != 2 || !testrun.RaceDetector && !testrun.Long && (i%2 == 0) == (name == "llama") ||
						precision != "" &&
							i%3 != 0 && !testrun.Long {
						continue
					}
					sameUnder(t, want, l.name, slices.Concat(sets, l.sets))
				}
			})
		}
	}
}

// TestExactOtherFamilies is TestExact, under fewer layouts, for what other families have: norms
// of heads, heads of another width, biases, and windows.
func TestExactOtherFamilies(t *testing.T) {
	for name, family := range map[string][]string{
		"qwen3, window": {"model.family=qwen3", "model.kv_heads=2", "model.head_dim=10", "model.window=6"},
		"qwen2":         {"model.family=qwen2", "model.kv_heads=2"},
		"mistral":       {"model.family=mistral", "model.window=3"},
		"smollm3":       {"model.family=smollm3"},
		"granite":       {"model.family=granite", "model.kv_heads=2"},
		"olmo3":         {"model.family=olmo3", "model.kv_heads=2", "model.window=6"},
		"gemma2":        {"model.family=gemma2", "model.kv_heads=2", "model.head_dim=10", "model.window=6"},
		"gemma3":        {"model.family=gemma3_text", "model.kv_heads=2", "model.window=6"},
		"gemma4":        {"model.family=gemma4_text", "model.kv_heads=2", "model.window=6"},
		"phi3":          {"model.family=phi3", "model.kv_heads=2"},
		"qwen3_5_text":  {"model.family=qwen3_5_text", "model.kv_heads=2"},
		"qwen3_moe": {"model.family=qwen3_moe", "model.kv_heads=2", "model.experts=5", "model.experts_per_token=3",
			"model.expert_ffn=24"},
		"gpt_oss": {"model.family=gpt_oss", "model.kv_heads=2", "model.experts=5", "model.experts_per_token=3", "model.window=6"},
		"qwen2_moe": {"model.family=qwen2_moe", "model.kv_heads=2", "model.experts=4", "model.expert_ffn=24", "model.shared_expert_ffn=40",
			"model.decoder_sparse_step=2", "model.aux_loss_weight=0.1", "model.load_balancing_type=seq_aux_loss"},
		"deepseek_v3": {"model.family=deepseek_v3", "model.experts=6", "model.expert_ffn=24", "model.n_group=3", "model.q_lora_rank=11",
			"model.router_bias_update_rate=0.05", "model.z_loss_weight=0.01", "model.input_jitter_eps=0.1", "model.aux_loss_weight=0.1"},
		"mixtral": {"model.family=mixtral", "model.experts=4", "model.aux_loss_weight=0.1"},
	} {
		for precision, types := range precisions {
			if precision == ", bfloat16, residual float32" || testrun.RaceDetector && precision != "" {
				continue
			}
			t.Run(name+precision, func(t *testing.T) {
				_, _, few := testrun.Span()
				sets := slices.Concat(family, types, few)
				want := filepath.Join(t.TempDir(), "out")
				testrun.Train(t, want, sets...)
				checkClipped(t, want)
				for _, l := range layouts {
					if slices.Contains([]string{"uneven stages", "zb-v", "1 thread", "recompute partial"}[:testrun.Sometimes(2, 4)],
						l.name) {
						sameUnder(t, want, l.name, slices.Concat(sets, l.sets))
					}
				}
			})
		}
	}
}

// TestExactPassing is TestExact for a model whose layers pass more on than the residual stream: inputs of each layer, and keys and values
// that later layers use. Some layouts cut it between the embedding and all layers, some between a layer and those that use its keys.
func TestExactPassing(t *testing.T) {
	c := stages.Config{Family: stages.Gemma4, Layers: 4, Hidden: 16, Heads: 4, KVHeads: 2, HeadDim: 6, FullHeadDim: 8, FullKVHeads: 1, FFN: 40,
		Context: 32, Vocab: 256, Tie: true, RopeTheta: 1e4, WindowTheta: 1e3, Window: 6, Full: []int{1, 3}, LogitSoftCap: 30,
		RopeScaling: stages.RopeScaling{Type: "proportional", Partial: 0.5}, LayerInput: 6, SharedKV: 2, WideShared: true}
	usual := []string{"uneven stages", "embedding and loss alone", "zb-v", "4 stages gpipe", "an empty stage", "1 thread", "recompute partial"}
	for precision, types := range precisions {
		if testrun.RaceDetector && precision != "" {
			continue
		}
		t.Run("gemma4"+precision, func(t *testing.T) {
			_, end, few := testrun.Span()
			sets := slices.Concat(types, few, []string{"model.from=" + testrun.Directory(t, c, testrun.TensorsOf(t, c), nil)})
			want := filepath.Join(t.TempDir(), "out")
			testrun.Train(t, want, sets...)
			checkClipped(t, want)
			for _, l := range layouts {
				if slices.Contains(usual[:testrun.Sometimes(5, len(usual))], l.name) || testrun.Long && precision == "" {
					sameUnder(t, want, l.name, slices.Concat(sets, l.sets))
				}
			}
			if precision != "" {
				return
			}
			replicas := filepath.Join(t.TempDir(), "replicas")
			testrun.Train(t, replicas, slices.Concat(sets, []string{"parallel.data=2"})...)
			for _, zero := range []string{"3", "2", "1"}[:testrun.Sometimes(1, 3)] {
				out := filepath.Join(t.TempDir(), "zero"+zero)
				testrun.Train(t, out, slices.Concat(sets, []string{"parallel.data=2", "parallel.zero=" + zero, "pipeline.stages=3"})...)
				testrun.SameFigures(t, replicas, out)
				testrun.SameState(t, replicas, out, end)
			}
		})
	}
	t.Run("adapter", func(t *testing.T) {
		_, _, few := testrun.Span()
		sets := slices.Concat(few, []string{"model.from=" + testrun.Directory(t, c, testrun.TensorsOf(t, c), nil), "adapter.rank=2",
			"adapter.dropout=0.2"})
		want := filepath.Join(t.TempDir(), "out")
		testrun.Train(t, want, sets...)
		sameUnder(t, want, "uneven stages", slices.Concat(sets, layouts[6].sets))
	})
	t.Run("frozen", func(t *testing.T) { // no gradient goes to the layers below
		_, _, few := testrun.Span()
		sets := slices.Concat(few, []string{"model.from=" + testrun.Directory(t, c, testrun.TensorsOf(t, c), nil),
			`model.freeze=["embed", "0-1"]`})
		want := filepath.Join(t.TempDir(), "out")
		testrun.Train(t, want, sets...)
		sameUnder(t, want, "uneven stages", slices.Concat(sets, layouts[6].sets))
	})
}

// sameUnder trains under a layout, from the start and from the middle on of a run of a span,
// and holds both against that run.
func sameUnder(t *testing.T, want, layout string, sets []string) {
	middle, end, _ := testrun.Span()
	t.Run(layout, func(t *testing.T) {
		t.Parallel()
		out := filepath.Join(t.TempDir(), "out")
		testrun.Train(t, out, sets...)
		testrun.SameFigures(t, want, out)
		testrun.SameState(t, want, out, end)
	})
	t.Run("resumed, "+layout, func(t *testing.T) {
		t.Parallel()
		out := testrun.Rewind(t, want, middle)
		if result, _ := testrun.Train(t, out, sets...); result.Step != end {
			t.Fatalf("it ended at step %d", result.Step)
		}
		testrun.SameFigures(t, want, out)
		testrun.SameState(t, want, out, end)
	})
}

// checkClipped makes sure that clip_norm bites at every step.
func checkClipped(t *testing.T, out string) {
	t.Helper()
	rs := testrun.Records(t, out)
	if _, end, _ := testrun.Span(); len(rs) != end+1 {
		t.Fatalf("%d lines, want %d: the validation before training and %d steps", len(rs), end+1, end)
	}
	for _, r := range rs[1:] {
		if r.GradNorm == nil || *r.GradNorm <= 0.05 || r.Skipped {
			t.Fatalf("step %d was not clipped: %s", r.Step, testrun.Figures(r))
		}
	}
}
