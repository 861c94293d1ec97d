package bits

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// adapters are runs with an adapter of a small base.
var adapters = []struct {
	name       string
	base, sets []string
	saved      []string // modules that are trained whole
}{
	{"gpt2, tied, head, dropout", []string{"model.family=gpt2"}, []string{"adapter.rank=3", "adapter.dropout=0.2",
		`adapter.targets=["c_attn", "mlp.c_fc", "lm_head"]`, "adapter.save=ln_f"}, []string{"transformer.ln_f"}},
	{"llama, dora, bfloat16", []string{"model.family=llama", "model.kv_heads=2", "model.tie_embeddings=false", "device.dtype=bfloat16"},
		[]string{"adapter.rank=2", "adapter.dora=true", "adapter.rank_pattern=q_proj=5", "adapter.save=lm_head"}, []string{"lm_head"}},
	{"phi3, rslora", []string{"model.family=phi3", "model.kv_heads=2"}, []string{"adapter.rank=4", "adapter.rslora=true",
		`adapter.targets=["qkv_proj", "down_proj"]`}, nil},
	{"qwen3_moe, experts frozen in bfloat16", []string{"model.family=qwen3_moe", "model.kv_heads=2", "model.experts=4",
		"model.expert_ffn=32"}, []string{"adapter.rank=2", "model.frozen_dtype=int8"}, nil},
}

// TestAdapter: a run with an adapter has the same bits under every layout, with ZeRO, and after a resume. Its checkpoints have the
// trained parameters alone, and name the base.
func TestAdapter(t *testing.T) {
	for k, a := range adapters {
		t.Run(a.name, func(t *testing.T) {
			middle, end, few := testrun.Span()
			base := filepath.Join(t.TempDir(), "base")
			testrun.Train(t, base, slices.Concat(a.base, []string{"run.steps=1", "run.eval_every=0", "run.checkpoint_every=0",
				"optimizer.warmup_steps=0"})...)
			sets := slices.Concat(a.base, a.sets, few, []string{"model.from=" + base})
			want := filepath.Join(t.TempDir(), "out")
			testrun.Train(t, want, sets...)
			c := openAt(t, want, end)
			is, err := rundir.ReadAdapted(c)
			if err != nil || is == nil || is.Base.From != base || !c.Part() {
				t.Fatalf("the checkpoint names %+v, %v", is, err)
			}
			before := openAt(t, want, middle)
			for _, name := range c.Model().Names() {
				_, was := testrun.Floats(t, before.Model(), name)
				if _, w := testrun.Floats(t, c.Model(), name); slices.Equal(w, was) {
					t.Errorf("%s was not trained", name)
				}
				own := strings.Contains(name, ".lora_") || slices.ContainsFunc(a.saved, func(m string) bool { return strings.HasPrefix(name, m+".") })
				if !own || !slices.Contains(c.Optimizer().Names(), "m."+name) {
					t.Errorf("%s is in the checkpoint, trained %v, or has no state", name, own)
				}
			}
			for i, l := range layouts {
				if (i+5*k)%9 == 4 && !testrun.RaceDetector || testrun.Long {
					sameUnder(t, want, l.name, slices.Concat(sets, l.sets))
				}
			}
			replicas := filepath.Join(t.TempDir(), "replicas")
			testrun.Train(t, replicas, slices.Concat(sets, []string{"parallel.data=2"})...)
			for _, zero := range []string{"1", "2", "3"}[:testrun.Sometimes(1, 3)] {
				out := filepath.Join(t.TempDir(), "zero")
				testrun.Train(t, out, slices.Concat(sets, []string{"parallel.data=2", "parallel.zero=" + zero, "pipeline.stages=2"})...)
				testrun.SameFigures(t, replicas, out)
				testrun.SameState(t, replicas, out, end)
			}
		})
	}
}

// TestAdapterOfAnotherBase: a run with an adapter resumes beside its base wherever that is, and beside no other one. A run does not
// start from an adapter, nor with patterns that match nothing.
func TestAdapterOfAnotherBase(t *testing.T) {
	few := []string{"run.steps=1", "run.eval_every=0", "run.checkpoint_every=0", "optimizer.warmup_steps=0"}
	base, other := filepath.Join(t.TempDir(), "base"), filepath.Join(t.TempDir(), "other")
	testrun.Train(t, base, few...)
	testrun.Train(t, other, append([]string{"run.seed=8"}, few...)...)
	out := filepath.Join(t.TempDir(), "out")
	sets := append([]string{"adapter.rank=2"}, few...)
	testrun.Train(t, out, append([]string{"model.from=" + base}, sets...)...)
	longer := append(slices.Clone(sets), "run.steps=2")
	moved := testrun.CopyTree(t, base)
	if result, _ := testrun.Train(t, out, append([]string{"model.from=" + moved}, longer...)...); result.Step != 2 {
		t.Errorf("beside a copy of the base the run ended at step %d", result.Step)
	}
	refused := func(out string, sets []string, is error, want ...string) {
		t.Helper()
		_, err := troupe.Start(context.Background(), testrun.NewConfig(t, out, sets...), troupe.Options{})
		if err == nil || is != nil && !errors.Is(err, is) {
			t.Fatalf("%q: %v", sets, err)
		}
		for _, text := range want {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%q: %v, want %q", sets, err, text)
			}
		}
	}
	is, err := rundir.ReadAdapted(openAt(t, out, 2))
	if err != nil {
		t.Fatal(err)
	}
	refused(out, append([]string{"model.from=" + other, "run.steps=3"}, sets...), rundir.ErrBase, "model.from", is.Base.SHA256,
		"but those of "+
			other+" have ")
	fresh := func() string { return filepath.Join(t.TempDir(), "out") }
	refused(fresh(), append([]string{"model.from=" + out}, few...), nil, "model.from", "has only an adapter, not the weights of a model")
	from := append([]string{"model.from=" + base}, sets...)
	for set, want := range map[string]string{
		"adapter.targets=q_proj":        `adapter.targets: "q_proj" matches none of the 17 modules ("c_attn", "c_fc", "c_proj", "lm_head") of this gpt2 model`,
		"adapter.targets=[":             `adapter.targets: "[" is not a regular expression`,
		"adapter.save=ln_9":             `adapter.save: "ln_9" matches none of the model's 27 modules`,
		"adapter.save=lm_head":          `this model's head is its embedding matrix: save "transformer.wte" instead`,
		"adapter.rank_pattern=q_proj=3": `adapter.rank_pattern: "q_proj" matches none of the modules with an adapter, out of 17 modules`,
		"adapter.dora=true":             `adapter.dora: transformer.h.0.attn.c_attn cannot have one`,
	} {
		refused(fresh(), append(slices.Clone(from), set), nil, want)
	}
}
