package life

import (
	"encoding/json"
	"errors"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// TestSkip: one token's embedding is not a number, so that every step that
// meets the token has no loss. Those steps are reported and change nothing, and
// the others train on.
func TestSkip(t *testing.T) {
	text := testrun.Read(t, "testdata/troupe.txt")
	half := len(text) / 2
	strange := testrun.Write(t, filepath.Join(t.TempDir(), "strange.txt"), text[:half]+strings.ReplaceAll(text[half:], "fiddler", "\x01"))
	sets := []string{"data.train=" + strange, "data.val=testdata/troupe.txt", "model.family=llama", "model.tie_embeddings=false",
		"run.checkpoint_every=1", "run.steps=10", "pipeline.stages=2"}
	out := filepath.Join(t.TempDir(), "out")
	testrun.Train(t, out, sets...)
	out = testrun.Rewind(t, out, 2)
	testrun.Doctor(t, out, 2, "model.embed_tokens.weight", func(values []float32) { values[16] = float32(math.NaN()) })
	var each []troupe.Change // after a skipped step only one that is asked for is written
	for step := int64(3); step <= 10; step++ {
		each = append(each, troupe.Change{Kind: troupe.ChangeCheckpoint, Step: step})
	}
	run, err := troupe.Start(t.Context(), testrun.NewConfig(t, out, sets...), troupe.Options{Requests: each})
	if err != nil {
		t.Fatal(err)
	}
	testrun.Finish(t, run)

	skipped := 0
	lines := strings.Split(testrun.Read(t, filepath.Join(out, "metrics.jsonl")), "\n")
	for i, r := range testrun.Records(t, out)[3:] {
		step := i + 3
		before, after := testrun.Read(t, filepath.Join(testrun.StepDir(out, step-1), "model.safetensors")),
			testrun.Read(t, filepath.Join(testrun.StepDir(out, step), "model.safetensors"))
		if !r.Skipped {
			if before == after || math.IsNaN(*r.Loss) || math.IsNaN(*r.GradNorm) {
				t.Errorf("step %d neither trained nor was skipped: %s", step, testrun.Figures(r))
			}
			continue
		}
		skipped++
		if before != after {
			t.Errorf("step %d was skipped and changed the weights", step)
		}
		if testrun.Read(t, filepath.Join(testrun.StepDir(out, step-1), "optimizer.safetensors")) != testrun.Read(t,
			filepath.Join(testrun.StepDir(out, step), "optimizer.safetensors")) {
			t.Errorf("step %d was skipped and changed the optimizer's state", step)
		}
		if line := lines[step]; !strings.Contains(line, `"loss":null`) || !strings.Contains(line, `"skipped":true`) {
			t.Errorf("step %d was skipped, and its line is %s", step, line)
		}
	}
	if skipped == 0 || skipped == 8 {
		t.Fatalf("%d of 8 steps were skipped; the test wants some", skipped)
	}
	var state struct{ Step, Updates int }
	if err := json.Unmarshal([]byte(testrun.Read(t, filepath.Join(testrun.StepDir(out, 10), "trainer.json"))), &state); err != nil {
		t.Fatal(err)
	}
	if state.Step != 10 || state.Updates != 10-skipped {
		t.Fatalf("%d steps with %d updates, want 10 with %d", state.Step, state.Updates, 10-skipped)
	}
}

// TestDiverged: a model of which nothing is left but NaN runs to its end, and
// says so.
func TestDiverged(t *testing.T) {
	const noEval = "run.eval_every=0"
	out := filepath.Join(t.TempDir(), "out")
	testrun.Train(t, out, noEval)
	out = testrun.Rewind(t, out, 3)
	testrun.Doctor(t, out, 3, "transformer.ln_f.weight", func(values []float32) { values[0] = float32(math.NaN()) })
	result, events := testrun.Train(t, out, noEval)
	if result.Step != 6 || !math.IsNaN(result.LastValLoss) {
		t.Fatalf("it ended at step %d with a validation loss of %g", result.Step, result.LastValLoss)
	}
	for _, e := range testrun.EventsOf[troupe.StepEvent](events) {
		if !e.Skipped {
			t.Errorf("step %d was not skipped", e.Step)
		}
	}
	if !slices.ContainsFunc(testrun.EventsOf[troupe.CheckpointEvent](events), func(e troupe.CheckpointEvent) bool { return e.Step == 6 }) {
		t.Error("there is no checkpoint of the last step")
	}
	if result, _ = testrun.Train(t, out, noEval, "run.steps=7"); result.Step != 7 {
		t.Fatalf("it can't be resumed: it ended at step %d", result.Step)
	}
}

// TestNotFinite: a model that computes no numbers neither writes nor has a loss.
func TestNotFinite(t *testing.T) {
	const last, text = "model.norm.weight", "model.layers.3.mlp.down_proj.weight"
	trained := testrun.Trained(t, "model.family=llama", "model.tie_embeddings=false", "model.vocab=300", "run.eval_every=0")
	for _, c := range []struct {
		name, tensor   string
		at             int
		value          float32
		prompt, says   string
		writes, losing bool
	}{
		{"NaN everywhere", last, 0, float32(math.NaN()), "A", "token 1 of 20: not a finite number: the logit of id 0 is NaN", false, true},
		{"infinity", last, 0, float32(math.Inf(1)), "A", "token 1 of 20: not a finite number: the logit of id ", false, true},
		{"NaN for one token", "lm_head.weight", 65 * 16, float32(math.NaN()), "A",
			"token 1 of 20: not a finite number: the logit of id 65 is NaN", false, true},
		{"NaN for an id that is no text", "lm_head.weight", 299 * 16, float32(math.NaN()), "A", "", true, true},
		{"numbers", text, 0, 0, "A", "", true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := testrun.Rewind(t, trained, 6)
			testrun.Doctor(t, out, 6, c.tensor, func(values []float32) { values[c.at] = c.value })
			model := troupe.ModelOptions{From: out}
			var written strings.Builder
			err := troupe.Generate(t.Context(), troupe.GenerateOptions{ModelOptions: model,
				TextOptions: troupe.TextOptions{Prompt: c.prompt, Tokens: 20, Temperature: 0.8, Seed: 1}},
				func(b []byte) error {
					written.Write(b)
					return nil
				})
			if bad := errors.Is(err, troupe.ErrNotFinite); bad == c.writes || err != nil && !bad || (written.Len() > 0) != c.writes {
				t.Errorf("it wrote %q and ended with %v", written.String(), err)
			}
			if err != nil && (!strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), testrun.StepDir(out, 6))) {
				t.Errorf("error %v, want %q and the checkpoint in it", err, c.says)
			}
			res, err := troupe.Evaluate(t.Context(), troupe.EvalOptions{ModelOptions: model})
			if losing := math.IsNaN(res.Loss) || math.IsInf(res.Loss, 0); losing != c.losing || errors.Is(err, troupe.ErrNotFinite) != losing ||
				res.Tokens == 0 {
				t.Errorf("a loss of %g, error %v", res.Loss, err)
			}
			if err != nil && !strings.Contains(err.Error(), testrun.StepDir(out, 6)) {
				t.Errorf("error %v does not name the checkpoint", err)
			}
		})
	}
}
