package data

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/infer"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// longPrompt has more bytes than a run's context, and fewer than its model's positions.
const longPrompt = "Every stage is an actor, and one waits."

// shortRun trains a model of 64 positions with a context of 8, and returns the run, the model that it
// began from, and its export.
func shortRun(t *testing.T, family string) (run, model, export string) {
	t.Helper()
	c := testrun.TinyModels[family]
	c.Context = 64
	model = testrun.Directory(t, c, testrun.TensorsOf(t, c), nil)
	run = filepath.Join(t.TempDir(), "out")
	testrun.Finish(t, testrun.Start(t, testrun.FromConfig(t, model, "model.context=8", "run.out="+run, "optimizer.lr=1e-12",
		"run.eval_every=1", "run.sample_tokens=4", "run.sample_prompt="+longPrompt)))
	return run, model, exported(t, run, "float32", 0)
}

// TestGenerateSeesPositions: what a run's context was does not limit what its model sees of a text.
func TestGenerateSeesPositions(t *testing.T) {
	for _, family := range []string{"llama", "gpt2"} {
		t.Run(family, func(t *testing.T) {
			run, model, export := shortRun(t, family)
			for _, tokens := range []int{1, 8, 64 - len(longPrompt) + 1, 120} { // within the positions, up to them, and beyond
				var texts []string
				var reports []troupe.GenerateReport
				for _, from := range []string{run, model, export} {
					var r troupe.GenerateReport
					text, _ := testrun.Generate(t, troupe.GenerateOptions{ModelOptions: troupe.ModelOptions{From: from},
						TextOptions: troupe.TextOptions{Prompt: longPrompt,
							Tokens: tokens, IgnoreEnd: true, Report: &r}})
					texts, reports = append(texts, text), append(reports, r)
				}
				if texts[0] != texts[1] || texts[0] != texts[2] {
					t.Errorf("%d tokens: the run %q, the model that it began from %q, its export %q", tokens, texts[0], texts[1], texts[2])
				}
				moves := map[bool]int{true: 3}[tokens == 120] // after 26 written ones, then every 33
				if want := (troupe.GenerateReport{Context: 64, PromptTokens: len(longPrompt), Tokens: tokens, Finish: infer.FinishLength,
					WindowMoves: moves}); reports[0] != want || reports[0] != reports[2] {
					t.Errorf("%d tokens: %+v and %+v, want %+v", tokens, reports[0], reports[2], want)
				}
			}
		})
	}
}

// TestGenerateReportsCuts: a prompt that does not fit and a context that is full are reported, once, before the text.
func TestGenerateReportsCuts(t *testing.T) {
	run, _, _ := shortRun(t, "llama")
	for _, tt := range []struct {
		name            string
		context, tokens int
		want            troupe.GenerateReport
		warnings        []string
	}{
		{"all fits", 0, 5, troupe.GenerateReport{Context: 64, PromptTokens: 39, Tokens: 5, Finish: infer.FinishLength}, nil},
		{"the prompt is cut", 16, 1, troupe.GenerateReport{Context: 16, PromptTokens: 39, PromptCut: 23, Tokens: 1, Finish: infer.FinishLength},
			[]string{"39 tokens, but the context has 16: the model does not see the first 23"}},
		{"both", 16, 30, troupe.GenerateReport{Context: 16, PromptTokens: 39, PromptCut: 23, Tokens: 30, WindowMoves: 4, Finish: infer.FinishLength},
			[]string{"first 23", "16 tokens is full after 1 generated token"}},
		{"the window moves", 40, 4, troupe.GenerateReport{Context: 40, PromptTokens: 39, Tokens: 4, WindowMoves: 1, Finish: infer.FinishLength},
			[]string{"40 tokens is full after 2 generated tokens"}},
		{"as long as the prompt", 39, 1, troupe.GenerateReport{Context: 39, PromptTokens: 39, Tokens: 1, Finish: infer.FinishLength}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got troupe.GenerateReport
			var warnings []string
			testrun.Generate(t, troupe.GenerateOptions{ModelOptions: troupe.ModelOptions{From: run},
				TextOptions: troupe.TextOptions{Prompt: longPrompt, Tokens: tt.tokens,
					Context: tt.context, IgnoreEnd: true, Report: &got,
					Warn: func(text string) { warnings = append(warnings, text) }}})
			if got != tt.want || len(warnings) != len(tt.warnings) {
				t.Fatalf("%+v with the warnings %q; want %+v with %d", got, warnings, tt.want, len(tt.warnings))
			}
			for i, want := range tt.warnings {
				if !strings.Contains(warnings[i], want) || !strings.Contains(warnings[i], "the model has 64 positions") {
					t.Errorf("warning %q, want %q and the positions in it", warnings[i], want)
				}
			}
		})
	}
	for _, context := range []int{-1, 65} {
		o := troupe.GenerateOptions{ModelOptions: troupe.ModelOptions{From: run},
			TextOptions: troupe.TextOptions{Prompt: "x", Tokens: 1, Context: context}}
		if err := troupe.Generate(t.Context(), o, func([]byte) error { return nil }); !errors.Is(err, troupe.ErrOptions) ||
			!strings.Contains(err.Error(), "positions") {
			t.Errorf("a context of %d: %v", context, err)
		}
	}
}

// TestSamplesSeePositions: the samples and the snapshots of a run see what its model sees, and say once what they don't.
func TestSamplesSeePositions(t *testing.T) {
	c := testrun.TinyModels["llama"]
	c.Context = 64
	from := testrun.Directory(t, c, testrun.TensorsOf(t, c), nil)
	out := filepath.Join(t.TempDir(), "out")
	sets := []string{"model.context=8", "run.out=" + out, "run.steps=3", "run.eval_every=1", "run.sample_tokens=40", "run.sample_prompt=" +
		longPrompt}
	run := testrun.Start(t, testrun.FromConfig(t, from, sets...))
	s, err := run.Snapshot(context.Background(), troupe.SnapshotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var r troupe.GenerateReport
	if err := s.Generate(t.Context(), troupe.TextOptions{Prompt: longPrompt, Tokens: 20, IgnoreEnd: true, Report: &r},
		func([]byte) error { return nil }); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if want := (troupe.GenerateReport{Context: 64, PromptTokens: 39, Tokens: 20, Finish: infer.FinishLength}); r != want {
		t.Errorf("a snapshot's text: %+v, want %+v", r, want)
	}
	_, events := testrun.Finish(t, run)
	said := 0
	for _, e := range testrun.EventsOf[troupe.WarningEvent](events) {
		if strings.Contains(e.Text, "run.sample_tokens") && strings.Contains(e.Text, "the context of 64 tokens is full") {
			said++
		}
	}
	if said != 1 {
		t.Errorf("%d warnings of the samples' window, want one", said)
	}
}
