package bits

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// states are runs whose optimizer state is not float32: with tied weights, of Muon, with several parameters in one stored tensor, of
// SGD, and with a parameter in several stored tensors.
var states = []struct {
	name  string
	sets  []string
	parts []string // of a norm's state in a checkpoint, and their types
}{
	{"bfloat16, gpt2, tied", []string{"model.family=gpt2", "optimizer.state_dtype=bfloat16"}, []string{"m BF16", "v BF16"}},
	{"int8, gpt2, tied", []string{"model.family=gpt2", "optimizer.state_dtype=int8"},
		[]string{"m U8", "m_scale F32", "v U8", "v_scale F32"}},
	{"int8, phi3, muon", []string{"model.family=phi3", "model.kv_heads=2", "optimizer.name=muon", "optimizer.state_dtype=int8"},
		[]string{"m U8", "m_scale F32", "v U8", "v_scale F32"}},
	{"bfloat16, llama, sgd, frozen layers", []string{"model.family=llama", `model.freeze=["embed", "0"]`, "model.tie_embeddings=false",
		"optimizer.name=sgd", "optimizer.state_dtype=bfloat16"}, []string{"momentum BF16"}},
	{"int8, qwen3_moe", []string{"model.family=qwen3_moe", "model.kv_heads=2", "model.experts=5", "model.experts_per_token=3",
		"model.expert_ffn=24", "optimizer.state_dtype=int8"}, []string{"m U8", "m_scale F32", "v U8", "v_scale F32"}},
}

// TestExactState: a state in fewer bits is the same under every layout, and after a resume, and its losses are near those of float32.
func TestExactState(t *testing.T) {
	for k, s := range states {
		if testrun.RaceDetector && k > 1 {
			continue // races don't depend on the numbers
		}
		t.Run(s.name, func(t *testing.T) {
			_, end, few := testrun.Span()
			sets := slices.Concat(s.sets, few)
			want, wide := filepath.Join(t.TempDir(), "out"), filepath.Join(t.TempDir(), "wide")
			testrun.Train(t, want, sets...)
			checkClipped(t, want)
			c := openAt(t, want, end)
			var parts []string
			for _, name := range c.Optimizer().Names() {
				part, of, _ := strings.Cut(name, ".")
				if strings.HasSuffix(of, "2.ln_1.weight") || strings.HasSuffix(of, "2.input_layernorm.weight") {
					info, _ := c.Optimizer().Info(name)
					parts = append(parts, part+" "+info.DType)
				}
			}
			if slices.Sort(parts); !slices.Equal(parts, s.parts) {
				t.Errorf("the state of a norm has the parts %q, want %q", parts, s.parts)
			}
			testrun.Train(t, wide, append(sets, "optimizer.state_dtype=float32")...)
			if d := math.Abs(lastLoss(t, want) - lastLoss(t, wide)); d == 0 || d > 0.02 {
				t.Errorf("the last loss is %g, with a state in float32 %g", lastLoss(t, want), lastLoss(t, wide))
			}
			for i, l := range layouts {
				if testrun.Long || (i+5*k)%9 == 4 || l.name == "1 thread" {
					sameUnder(t, want, l.name, slices.Concat(sets, l.sets))
				}
			}
			if k != 2 {
				sameUnder(t, want, "ahead", slices.Concat(sets, muonAhead))
			}
		})
	}
}

// lastLoss returns the loss of a run's last step.
func lastLoss(t *testing.T, out string) float64 {
	t.Helper()
	all := testrun.Records(t, out)
	return *all[len(all)-1].Loss
}

// TestStateZero: where replicas share a state in bfloat16, every bit is that of replicas with whole states, and tensor groups repeat
// theirs.
func TestStateZero(t *testing.T) {
	sets := []string{"run.steps=4", "run.checkpoint_every=2", "parallel.data=2", "model.hidden=128", "optimizer.state_dtype=bfloat16"}
	for _, kind := range [][]string{
		nil, {"optimizer.state_dtype=int8", "parallel.data=4"}, {"optimizer.state_dtype=int8", "optimizer.name=muon"},
		{"optimizer.state_dtype=int8", "model.family=qwen3_moe", "model.expert_ffn=24"},
	} {
		want, own := filepath.Join(t.TempDir(), "out"), slices.Concat(sets, kind)
		testrun.Train(t, want, own...)
		for _, zero := range []string{"parallel.zero=1", "parallel.zero=3"} {
			out := testrun.Rewind(t, want, 2)
			testrun.Train(t, out, append(slices.Clone(own), zero)...)
			testrun.SameFigures(t, want, out)
			testrun.SameState(t, want, out, 4)
			testrun.Train(t, out, slices.Concat(own, []string{"run.steps=5", "parallel.data=1"})...)
		}
	}
	sets = append(sets, "parallel.tensor=2", "model.hidden=32")
	want, again := filepath.Join(t.TempDir(), "out"), filepath.Join(t.TempDir(), "again")
	testrun.Train(t, want, sets...)
	testrun.Train(t, again, append(slices.Clone(sets), "parallel.zero=1", "pipeline.stages=2")...)
	testrun.SameFigures(t, want, again)
	testrun.SameState(t, want, again, 4)
}

// TestStateConverted: a run resumes with a state of another type, and says so. A state that fits the new type stays as it is: what was
// widened gives the same state when it is narrowed again. A checkpoint of float32, as earlier versions wrote them, does not name the
// type and resumes without a word.
func TestStateConverted(t *testing.T) {
	const key = "optimizer.state_dtype"
	middle, end, few := testrun.Span()
	warned := func(sets []string, from string) (out string, text string) {
		out = testrun.Rewind(t, from, middle)
		_, events := testrun.Train(t, out, sets...)
		for _, w := range testrun.EventsOf[troupe.WarningEvent](events) {
			if strings.Contains(w.Text, key) {
				text += w.Text
			}
		}
		return out, text
	}
	plain := filepath.Join(t.TempDir(), "out")
	testrun.Train(t, plain, few...)
	if text := testrun.Read(t, filepath.Join(testrun.StepDir(plain, middle), "config.toml")); strings.Contains(text, "state_dtype") {
		t.Error("the configuration of a checkpoint names the usual type")
	}
	again, text := warned(few, plain)
	if testrun.SameState(t, plain, again, end); text != "" {
		t.Errorf("a run that resumes without a change warns: %s", text)
	}
	for dtype, stored := range map[string]string{"bfloat16": "BF16", "int8": "U8"} {
		sets := append(slices.Clone(few), key+"="+dtype)
		out, text := warned(sets, plain)
		if !strings.Contains(text, `"float32"`) || !strings.Contains(text, `"`+dtype+`"`) {
			t.Errorf("from float32 to %s the warning is %q", dtype, text)
		}
		if d := math.Abs(lastLoss(t, out) - lastLoss(t, plain)); d == 0 || d > 0.02 {
			t.Errorf("from float32 to %s the last loss is %g, was %g", dtype, lastLoss(t, out), lastLoss(t, plain))
		}
		narrow := filepath.Join(t.TempDir(), "narrow")
		testrun.Train(t, narrow, sets...)
		wide, text := warned(few, narrow)
		if !strings.Contains(text, `"`+dtype+`"`) {
			t.Errorf("from %s to float32 the warning is %q", dtype, text)
		}
		if d := math.Abs(lastLoss(t, wide) - lastLoss(t, narrow)); d > 0.02 {
			t.Errorf("from %s to float32 the last loss is %g, was %g", dtype, lastLoss(t, wide), lastLoss(t, narrow))
		}
		for _, c := range [][2]string{{out, stored}, {narrow, stored}, {wide, "F32"}} {
			if info, _ := openAt(t, c[0], end).Optimizer().Info("m.transformer.wte.weight"); info.DType != c[1] {
				t.Errorf("%s: a state has the type %s, want %s", dtype, info.DType, c[1])
			}
		}
	}
}
