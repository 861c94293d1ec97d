package bits

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// preferenceRuns learn from preferences in every way.
var preferenceRuns = []struct {
	name       string
	base, sets []string
}{
	{"dpo, gpt2, tied", []string{"model.family=gpt2"}, []string{"preference.loss=dpo", "preference.label_smoothing=0.1"}},
	{"ipo, gemma2, bfloat16", []string{"model.family=gemma2", "model.kv_heads=2", "device.dtype=bfloat16"}, []string{"preference.loss=ipo"}},
	{"dpo, llama, adapter", []string{"model.family=llama", "model.kv_heads=2", "model.tie_embeddings=false"},
		[]string{"preference.loss=dpo", "adapter.rank=3", "adapter.dropout=0.2"}},
	{"orpo, llama", []string{"model.family=llama", "model.kv_heads=2"}, []string{"preference.loss=orpo"}},
	{"simpo, llama", []string{"model.family=llama", "model.kv_heads=2"}, []string{"preference.loss=simpo"}},
	{"kto, gpt2", []string{"model.family=gpt2"}, []string{"preference.loss=kto", "preference.undesirable_weight=1.5"}},
}

// preferenceSets are the keys of a run that learns from preferences, beside those of SmallRun. It starts from a model that has learned
// one step.
func preferenceSets(t *testing.T, base, sets []string) []string {
	t.Helper()
	from := filepath.Join(t.TempDir(), "base")
	testrun.Train(t, from, slices.Concat(base, []string{"run.steps=1", "run.eval_every=0", "run.checkpoint_every=0",
		"optimizer.warmup_steps=0"})...)
	data := testrun.AnswersOf(t, 60, slices.Contains(sets, "preference.loss=kto"))
	return slices.Concat(base, sets, []string{"model.from=" + from, "data.train=" + data, "data.format=documents", "batch.microbatch=2"})
}

// TestExactPreference: a run that learns from preferences has the same bits under every layout, and after a resume.
func TestExactPreference(t *testing.T) {
	for k, r := range preferenceRuns {
		t.Run(r.name, func(t *testing.T) {
			_, end, few := testrun.Span()
			sets := slices.Concat(preferenceSets(t, r.base, r.sets), few)
			want := filepath.Join(t.TempDir(), "out")
			testrun.Train(t, want, sets...)
			for i, l := range layouts {
				if (i+5*k)%13 == 4 && !testrun.RaceDetector || testrun.Long {
					sameUnder(t, want, l.name, slices.Concat(sets, l.sets))
				}
			}
			replicas := filepath.Join(t.TempDir(), "replicas")
			testrun.Train(t, replicas, slices.Concat(sets, []string{"parallel.data=2"})...)
			out := filepath.Join(t.TempDir(), "zero")
			testrun.Train(t, out, slices.Concat(sets, []string{"parallel.data=2", "parallel.zero=3", "pipeline.stages=2"})...)
			testrun.SameFigures(t, replicas, out)
			testrun.SameState(t, replicas, out, end)
		})
	}
}

// TestPreferenceGroups: ranks that share a layer or a sequence have the same loss, up to rounding.
func TestPreferenceGroups(t *testing.T) {
	sets := preferenceSets(t, []string{"model.family=llama", "model.kv_heads=2"}, []string{"preference.loss=dpo", "run.steps=3"})
	want := filepath.Join(t.TempDir(), "out")
	testrun.Train(t, want, sets...)
	for _, group := range []string{"parallel.tensor=2", "parallel.context=2"} {
		out := filepath.Join(t.TempDir(), "out")
		testrun.Train(t, out, append(slices.Clone(sets), group)...)
		a, b := testrun.Records(t, want), testrun.Records(t, out)
		for i := range a {
			apart := func(x, y *float64) bool { return x != nil && !(math.Abs(*x-*y) <= 1e-5) }
			if apart(a[i].Loss, b[i].Loss) || apart(a[i].ValLoss, b[i].ValLoss) {
				t.Errorf("%s: step %d: %s\nwant %s", group, i, testrun.Figures(b[i]), testrun.Figures(a[i]))
			}
		}
	}
}

// TestPreferenceLearns: before the first step the model is its reference. Then it learns which answer is better.
func TestPreferenceLearns(t *testing.T) {
	for _, loss := range []string{"dpo", "ipo", "orpo", "simpo", "kto"} {
		t.Run(loss, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out")
			sets := preferenceSets(t, []string{"model.family=llama", "model.kv_heads=2", "model.dropout=0"}, []string{
				"preference.loss=" + loss, "run.steps=40", "run.eval_every=20", "run.eval_batches=4", "optimizer.lr=0.01",
				"optimizer.clip_norm=0"})
			testrun.Train(t, out, sets...)
			all := testrun.Records(t, out)
			first, last := all[0], all[len(all)-1]
			at := map[string]float64{"dpo": math.Ln2, "ipo": 25, "kto": 0.5}[loss]
			if at != 0 && math.Abs(*first.ValLoss-at) > 1e-9 {
				t.Errorf("before the first step the loss is %g, want %g", *first.ValLoss, at)
			}
			if !(*last.ValLoss < *first.ValLoss) || last.Targets != nil || last.FullPct == nil {
				t.Errorf("the loss went from %g to %g; targets %v", *first.ValLoss, *last.ValLoss, last.Targets)
			}
			m := last.ValMetrics
			if loss == "kto" {
				if !(m["rewards_chosen"] > m["rewards_rejected"]) || last.Metrics["kl"] < 0 {
					t.Errorf("metrics %v, %v", m, last.Metrics)
				}
				return
			}
			if m["accuracy"] < 0.9 || math.Abs(m["rewards_chosen"]-m["rewards_rejected"]-m["rewards_margin"]) > 1e-6 {
				t.Errorf("metrics %v", m)
			}
		})
	}
}

// TestPreferenceStarts: with each number type and adapter, the model before the first step gives the same bits as its reference.
func TestPreferenceStarts(t *testing.T) {
	for _, sets := range [][]string{{"device.dtype=bfloat16"}, {"device.dtype=bfloat16", "device.residual=float32"},
		{"adapter.rank=2", "adapter.dropout=0.2"}, {"adapter.rank=2", "adapter.dora=true", "device.dtype=bfloat16"},
		{"adapter.rank=2", "model.frozen_dtype=nf4"}, {"pipeline.stages=3", "batch.microbatch=4"}} {
		out := filepath.Join(t.TempDir(), "out")
		base := []string{"model.family=llama", "model.kv_heads=2", "model.tie_embeddings=false", "model.hidden=64", "model.layers=4"}
		testrun.Train(t, out, preferenceSets(t, base, append([]string{"preference.loss=dpo", "run.steps=1"}, sets...))...)
		first := testrun.Records(t, out)[0]
		if math.Abs(*first.ValLoss-math.Ln2) > 1e-15 || first.ValMetrics["rewards_chosen"] != 0 || first.ValMetrics["rewards_margin"] != 0 {
			t.Errorf("%q: the first loss is %.17g, not log 2; metrics %v", sets, *first.ValLoss, first.ValMetrics)
		}
	}
}

// TestReferenceIsKept: the log-probabilities of the reference model are computed once. A run whose folder has lost them, or that are
// damaged, does not resume. One that was killed before its first checkpoint takes them if they are of the same model and data.
func TestReferenceIsKept(t *testing.T) {
	sets := preferenceSets(t, []string{"model.family=gpt2"}, []string{"preference.loss=dpo", "run.steps=2", "run.checkpoint_every=1",
		"run.eval_every=0"})
	out := filepath.Join(t.TempDir(), "out")
	computed := func(sets ...string) int {
		t.Helper()
		_, events := testrun.Train(t, out, sets...)
		return warnings(events, "under the reference model")
	}
	if n := computed(sets...); n != 1 {
		t.Errorf("a new run computed them %d times", n)
	}
	longer := append(slices.Clone(sets), "run.steps=3")
	if n := computed(longer...); n != 0 {
		t.Errorf("a run that resumed computed them %d times", n)
	}
	other := "data.train=" + testrun.AnswersOf(t, 64, false)
	run, err := troupe.Start(context.Background(), testrun.NewConfig(t, out, append(slices.Clone(longer), "run.steps=4", other)...),
		troupe.Options{AcceptNewData: true})
	if err != nil {
		t.Fatal(err)
	}
	testrun.Finish(t, run)
	if n := computed(append(slices.Clone(longer), "run.steps=5", other)...); n != 0 {
		t.Errorf("a run that resumed with new data computed them %d times", n)
	}
	sets = append(sets, other)
	file := filepath.Join(out, rundir.ReferenceFile)
	kept := testrun.Read(t, file)
	more := append(slices.Clone(sets), "run.steps=6")
	refused := func(want string) {
		t.Helper()
		_, err := troupe.Start(context.Background(), testrun.NewConfig(t, out, more...), troupe.Options{})
		if !errors.Is(err, rundir.ErrReference) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for text, want := range map[string]string{kept[:len(kept)/2]: "unexpected end", strings.Replace(kept, "-1", "-2", 1): "checksum",
		strings.Replace(kept, `"format_version":1`, `"format_version":9`, 1): "9", "": "JSON"} {
		testrun.Write(t, file, text)
		refused(want)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	refused("is missing")

	// Killed before the first checkpoint: what is left of the folder is a new run.
	killed := func() {
		t.Helper()
		for _, name := range []string{"checkpoints", "metrics.jsonl", "stats.jsonl"} {
			if err := os.RemoveAll(filepath.Join(out, name)); err != nil {
				t.Fatal(err)
			}
		}
		testrun.Write(t, file, kept)
	}
	killed()
	if n := computed(sets...); n != 0 {
		t.Errorf("a run that started again computed them %d times", n)
	}
	killed()
	if n := computed(append(slices.Clone(sets), "data.train="+testrun.AnswersOf(t, 62, false))...); n != 1 {
		t.Errorf("a run that started again with other data computed them %d times", n)
	}
}

// TestPreferenceFaults: lines that cannot be learned from are one error with file and row.
func TestPreferenceFaults(t *testing.T) {
	const good = `{"prompt": "a", "chosen": "b", "rejected": "c"}` + "\n"
	for _, c := range []struct{ line, want string }{
		{`{"prompt": "a", "chosen": "b"}`, `row 2: the object has "chosen", "prompt", but preference.loss = "dpo" also needs "rejected"`},
		{`{"prompt": "a", "completion": "b", "label": true}`, `also needs "chosen"`},
		{`{"prompt": "a", "chosen": "b", "rejected": "b"}`, `row 2: "chosen" and "rejected" are equal`},
		{`{"prompt": "a", "chosen": "", "rejected": "b"}`, `row 2: "chosen" is empty`},
		{`{"prompt": "a", "chosen": "b", "rejected": null}`, `also needs "rejected"`},
		{`{"prompt": "a", "chosen": "b", "rejected": 3}`, `row 2: "rejected" is 3, but must be a string`},
		{`{"chosen": "b", "rejected": "c"}`, `row 2: there is no "prompt"`},
		{`{"prompt": "", "chosen": "b", "rejected": "c"}`, `row 2: "chosen" is one token, and no token comes before it`},
		{`{"prompt": "` + strings.Repeat("a", 13) + `", "chosen": "bbbbb", "rejected": "bbbbbc"}`,
			`row 2: the answers differ only after the context of 16 tokens, where they are cut; raise model.context, or remove the line`},
		{`{"prompt": "a", "chosen": [{"role": "assistant", "content": "b"}], "rejected": "c"}`,
			`row 2: the object is a conversation, but the model has no chat template`},
		{`{"prompt": "` + strings.Repeat("a", 17) + `", "chosen": "b", "rejected": "c"}`,
			`row 2: the prompt alone has 17 tokens, but the context is 16`},
		{`{"prompt": "` + strings.Repeat("a", 16) + `", "chosen": "bcd", "rejected": "c"}`, ""},
		{`{"prompt": "a", "chosen": "b", "rejected": "c", "label": 3, "other": {"x": [1]}}`, ""},
		{`{"prompt": "a", "chosen": "` + strings.Repeat("b", 40) + `", "rejected": "c", "id": "x"}`, ""},
	} {
		line, want := c.line, c.want
		data := testrun.Write(t, filepath.Join(t.TempDir(), "a.jsonl"), good+line+"\n"+strings.Repeat(good, 20))
		out := filepath.Join(t.TempDir(), "out")
		cfg := testrun.NewConfig(t, out, "data.train="+data, "data.format=documents", "preference.loss=dpo", "batch.microbatch=2",
			"run.steps=1")
		run, err := troupe.Start(context.Background(), cfg, troupe.Options{})
		if want == "" {
			if err != nil {
				t.Errorf("%s: %v", line, err)
				continue
			}
			testrun.Finish(t, run)
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Count(err.Error(), "a.jsonl, row") != 1 {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
	}
}

// warnings counts the warnings of a run that have a text in them.
func warnings(events []troupe.Event, text string) (n int) {
	for _, w := range testrun.EventsOf[troupe.WarningEvent](events) {
		if strings.Contains(w.Text, text) {
			n++
		}
	}
	return n
}
