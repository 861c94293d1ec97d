package bits

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// frozen are runs of which some layers are not trained.
var frozen = []struct {
	name   string
	sets   []string
	frozen func(name string) bool // of a weight
}{
	{"gpt2, tied, first layers", []string{"model.family=gpt2", `model.freeze=["embed", "0-1"]`},
		func(name string) bool {
			return strings.HasPrefix(name, "transformer.w") || strings.HasPrefix(name, "transformer.h.0.") ||
				strings.HasPrefix(name, "transformer.h.1.")
		}},
	{"llama, untied, in the middle, bfloat16", []string{"model.family=llama", "model.kv_heads=2", "model.tie_embeddings=false",
		"device.dtype=bfloat16", `model.freeze=["1-2", "head"]`},
		func(name string) bool {
			return strings.HasPrefix(name, "model.layers.1.") || strings.HasPrefix(name, "model.layers.2.") || name == "model.norm.weight" ||
				name == "lm_head.weight"
		}},
	{"llama, all but the last layer, bfloat16", []string{"model.family=llama", "model.kv_heads=2", "device.dtype=bfloat16",
		`model.freeze=["embed", "0-2", "head"]`},
		func(name string) bool { return !strings.HasPrefix(name, "model.layers.3.") }},
	{"gpt2, tied, with a residual stream in float32, bfloat16", []string{"model.family=gpt2", "device.dtype=bfloat16",
		"device.residual=float32", `model.freeze=["embed", "0-1"]`},
		func(name string) bool {
			return strings.HasPrefix(name, "transformer.w") || strings.HasPrefix(name, "transformer.h.0.") ||
				strings.HasPrefix(name, "transformer.h.1.")
		}},
	{"qwen3 with a window, in the middle, bfloat16", []string{"model.family=qwen3", "model.kv_heads=2", "model.head_dim=10", "model.window=6",
		"device.dtype=bfloat16", `model.freeze=["embed", "2"]`},
		func(name string) bool {
			return name == "model.embed_tokens.weight" || strings.HasPrefix(name, "model.layers.2.")
		}},
	{"gpt2, tied, head with multi-token prediction", []string{"model.family=gpt2", "model.mtp_layers=1", `model.freeze=["embed", "4"]`},
		func(name string) bool {
			return strings.HasPrefix(name, "transformer.w") || strings.HasPrefix(name, "transformer.h.4.")
		}},
}

// TestFrozen: a run that leaves layers as they are has the same bits under every layout; those
// layers keep their weights and have no optimizer state, and the others learn.
func TestFrozen(t *testing.T) {
	for k, f := range frozen {
		t.Run(f.name, func(t *testing.T) {
			want := filepath.Join(t.TempDir(), "out")
			middle, end, few := testrun.Span()
			testrun.Train(t, want, slices.Concat(f.sets, few)...)
			before, after := openAt(t, want, middle), openAt(t, want, end)
			state := after.Optimizer().Names()
			for _, name := range after.Model().Names() {
				_, was := testrun.Floats(t, before.Model(), name)
				_, w := testrun.Floats(t, after.Model(), name)
				same := slices.Equal(w, was)
				if same != f.frozen(name) {
					t.Errorf("%s: unchanged %v, frozen %v", name, same, f.frozen(name))
				}
				// What a bfloat16 run holds in bfloat16 alone is stored so: matrices, and no norms or biases.
				info, _ := after.Model().Info(name)
				narrow := f.frozen(name) && slices.Contains(f.sets, "device.dtype=bfloat16") && len(info.Shape) == 2 &&
					(!slices.Contains(f.sets, "device.residual=float32") || !strings.HasPrefix(name, "transformer.w"))
				if narrow != (info.DType == "BF16") {
					t.Errorf("%s is stored as %s; frozen %v", name, info.DType, f.frozen(name))
				}
				if slices.Contains(state, "m."+name) == f.frozen(name) {
					t.Errorf("%s: frozen %v, and its moments are stored: %v", name, f.frozen(name), !f.frozen(name))
				}
			}
			for i, l := range layouts {
				if (i+k)%14 == 0 && (!testrun.RaceDetector || k%3 == 0) || testrun.Long { // make check-bits runs all
					sets := l.sets
					if slices.Contains(f.sets, "model.mtp_layers=1") && strings.Contains(strings.Join(sets, " "), "layout") {
						continue // of four layers
					}
					sameUnder(t, want, l.name, slices.Concat(f.sets, sets, few))
				}
			}
		})
	}
}

// openAt opens the checkpoint of a step.
func openAt(t *testing.T, out string, step int) *checkpoint.Checkpoint {
	t.Helper()
	c, err := checkpoint.OpenAt(testrun.StepDir(out, step))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// TestFrozenStored: a checkpoint with weights in bfloat16 is what one with the same in float32 would be
// to all that reads it: an evaluation, an export, and a run from it, in float32 and with other
// layers frozen. A run that goes on with other layers frozen has no optimizer state of them, and is refused.
func TestFrozenStored(t *testing.T) {
	sets := []string{"model.family=llama", "device.dtype=bfloat16", "model.tie_embeddings=false", `model.freeze=["embed", "0-2"]`}
	out := filepath.Join(t.TempDir(), "out")
	testrun.Train(t, out, sets...)
	wide := filepath.Join(t.TempDir(), "wide")
	for to, dtype := range map[string]string{wide: "float32", filepath.Join(t.TempDir(), "half"): "bfloat16"} {
		if _, err := troupe.Export(context.Background(), troupe.ExportOptions{From: out, To: to, DType: dtype}); err != nil {
			t.Fatal(err)
		}
	}
	exported, err := checkpoint.Open(wide)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = exported.Close() })
	own := openAt(t, out, 6)
	for _, name := range own.Model().Names() {
		info, _ := exported.Model().Info(name)
		_, a := testrun.Floats(t, own.Model(), name)
		if _, b := testrun.Floats(t, exported.Model(), name); info.DType != "F32" || !slices.Equal(a, b) {
			t.Errorf("%s is exported as %s, with the same numbers: %v", name, info.DType, slices.Equal(a, b))
		}
	}
	text := []string{"testdata/troupe.txt"}
	a, err := troupe.Evaluate(context.Background(), troupe.EvalOptions{ModelOptions: troupe.ModelOptions{From: out, DType: "float32"},
		Data: text})
	b, other := troupe.Evaluate(context.Background(), troupe.EvalOptions{ModelOptions: troupe.ModelOptions{From: wide}, Data: text})
	if err := errors.Join(err, other); err != nil || a.Loss != b.Loss {
		t.Errorf("losses %v and %v, %v", a.Loss, b.Loss, err)
	}
	for _, more := range [][]string{{"device.dtype=float32"}, {`model.freeze=["3"]`}} {
		from := func(dir string) string {
			to := filepath.Join(t.TempDir(), "out")
			testrun.Train(t, to, slices.Concat(sets, []string{"model.from=" + dir, "run.steps=3"}, more)...)
			return to
		}
		testrun.SameState(t, from(out), from(wide), 3)
	}
	_, err = troupe.Start(context.Background(), testrun.NewConfig(t, out,
		slices.Concat(sets, []string{"run.steps=9", `model.freeze=["embed", "0-1"]`})...), troupe.Options{})
	if err == nil || !strings.Contains(err.Error(), "freeze") && !strings.Contains(err.Error(), `"m.model.layers.2.`) {
		t.Errorf("other layers frozen in its middle: %v", err)
	}
}

// TestFrozenHeadIsTied: a frozen head whose matrix is the embedding's is trained with it, and the run says so.
func TestFrozenHeadIsTied(t *testing.T) {
	for _, tt := range []struct {
		sets []string
		says bool
	}{
		{[]string{"model.family=gpt2", `model.freeze=["head"]`}, true},
		{[]string{"model.family=gpt2", `model.freeze=["embed", "head"]`}, false},
		{[]string{"model.family=llama", "model.tie_embeddings=false", `model.freeze=["head"]`}, false},
		{[]string{"model.family=llama", "model.tie_embeddings=true", `model.freeze=["0-1", "head"]`}, true},
	} {
		_, events := testrun.Train(t, filepath.Join(t.TempDir(), "out"), append(tt.sets, "run.steps=1", "optimizer.warmup_steps=0",
			"run.checkpoint_every=0", "run.eval_every=0")...)
		said := slices.ContainsFunc(testrun.EventsOf[troupe.WarningEvent](events), func(e troupe.WarningEvent) bool {
			return strings.Contains(e.Text, `model.freeze: layer "head" is frozen, but it uses`) &&
				strings.Contains(e.Text, "belongs to a trained layer")
		})
		if said != tt.says {
			t.Errorf("%q: it warns %v, want %v", tt.sets, said, tt.says)
		}
	}
}
