package bits

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// textsOf writes documents that are texts of different lengths; one is empty, and one is longer than the context.
func textsOf(t *testing.T, n int) string {
	t.Helper()
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{\"text\": %q}\n", strings.Repeat(string(rune('a'+i%26)), (i*i)%13))
	}
	fmt.Fprintf(&b, "{\"text\": %q}\n", strings.Repeat("long ", 9))
	return testrun.Write(t, filepath.Join(t.TempDir(), "texts.jsonl"), b.String())
}

// shortPairs writes prompts with completions, several of which fit the context.
func shortPairs(t *testing.T, n int) string {
	t.Helper()
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{\"prompt\": %q, \"completion\": %q}\n", strings.Repeat("ab", i%3+1)[i%2:], strings.Repeat("x", i%5)+"yz"[i%2:])
	}
	return testrun.Write(t, filepath.Join(t.TempDir(), "pairs.jsonl"), b.String())
}

// TestPackingBits: packed documents have the same bits under every layout, and in a run that goes on from its middle.
func TestPackingBits(t *testing.T) {
	for k, c := range []struct {
		name string
		sets []string
	}{
		{"first-fit", []string{"data.train=" + shortPairs(t, 120), "data.packing=first-fit"}},
		{"split", []string{"data.train=" + textsOf(t, 90), "data.packing=split", "model.family=llama", "device.dtype=bfloat16"}},
		{"mtp", []string{"data.train=" + shortPairs(t, 120), "data.packing=first-fit", "model.family=qwen3", "model.window=6",
			"model.mtp_layers=1", "pipeline.recompute=full"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, few := testrun.Span()
			sets := append(append(c.sets, "data.format=documents", "batch.sequences=8", "batch.microbatch=2"), few...)
			want := filepath.Join(t.TempDir(), "out")
			testrun.Train(t, want, sets...)
			checkClipped(t, want)
			for _, r := range testrun.Records(t, want)[1:] {
				if r.FullPct == nil || !(*r.FullPct > 40 && *r.FullPct <= 100) || r.Targets == nil || !(*r.Targets > 8) {
					t.Errorf("step %d: %v full, %v targets", r.Step, r.FullPct, r.Targets)
				}
			}
			all := layouts
			if c.name == "mtp" {
				all = mtpLayouts
			}
			for i, l := range all {
				if testrun.RaceDetector && i%12 != k || !testrun.Long && i%6 != 1 {
					continue // make check-bits runs all
				}
				sameUnder(t, want, l.name, slices.Concat(sets, withLetters(l.sets, "m")))
			}
		})
	}
}

// TestPackedValidation: the loss of a validation is that of the documents one by one.
func TestPackedValidation(t *testing.T) {
	path := shortPairs(t, 60)
	var losses []float64
	for _, packing := range []string{"none", "first-fit"} {
		out := filepath.Join(t.TempDir(), "out")
		testrun.Train(t, out, "data.train="+path, "data.format=documents", "data.packing="+packing, "run.steps=1", "run.eval_batches=9")
		losses = append(losses, *testrun.Records(t, out)[0].ValLoss)
		eval, err := troupe.Evaluate(context.Background(), troupe.EvalOptions{ModelOptions: troupe.ModelOptions{From: out}})
		last := testrun.Records(t, out)[1].ValLoss
		if err != nil || last == nil || math.Abs(eval.Loss-*last) > 1e-6**last {
			t.Errorf("%s: a validation has the loss %v, the evaluation of the same documents %g, %v", packing, last, eval.Loss, err)
		}
	}
	if d := math.Abs(losses[1] - losses[0]); !(d <= 1e-6*losses[0]) {
		t.Errorf("packed documents have the loss %.9g, one by one %.9g", losses[1], losses[0])
	}
}

func TestPackingFaults(t *testing.T) {
	texts, pairs := textsOf(t, 60), shortPairs(t, 60)
	for name, c := range map[string]struct{ sets, want string }{
		"no documents":  {"data.packing=first-fit", `"first-fit" has no effect with`},
		"another value": {"data.packing=wrapped", "use one of none, first-fit, split"},
		"conversations": {"data.format=documents data.packing=split data.train=" + pairs,
			"row 1 is a prompt or a conversation; use \"first-fit\""},
		"no model for it": {"data.format=documents data.packing=first-fit model.family=mlp", "data.packing"},
		"too long": {"data.format=documents data.packing=first-fit data.too_long=refuse data.train=" + texts,
			"but the limit is 17"},
		"too long for nothing": {"data.format=documents data.packing=split data.too_long=refuse data.train=" + texts, "no document is too long"},
		"all empty": {"data.format=documents data.packing=first-fit data.train=" +
			testrun.Write(t, filepath.Join(t.TempDir(), "d.jsonl"), strings.Repeat("{\"text\": \"\"}\n", 20)), "has a token to learn"},
		"empty texts to split": {"data.format=documents data.packing=split data.train=" +
			testrun.Write(t, filepath.Join(t.TempDir(), "d.jsonl"), strings.Repeat("{\"text\": \"\"}\n", 20)), "a window needs 17"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, err := config.Parse("small.toml", []byte(testrun.SmallRun),
				append([]string{"run.out=" + filepath.Join(t.TempDir(), "out")}, strings.Fields(c.sets)...), nil)
			if err == nil {
				_, err = troupe.Start(context.Background(), cfg, troupe.Options{})
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v doesn't say %q", err, c.want)
			}
		})
	}
}
