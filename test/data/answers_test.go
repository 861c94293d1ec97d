package data

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/chat"
	"github.com/troupe-ml/troupe/internal/testing/documents"
)

// TestAnswersWordForWord: a model that was tuned until it knows its answers gives them word for word, and stops
// by itself, whatever its tokenizer and its chat template write around them.
func TestAnswersWordForWord(t *testing.T) {
	v := documents.Read(t)
	said := [][2]string{{"What waits?", "the stage waits"}, {"How many?", "a run of four"}, {"Hello there", "Yes, and no."}}
	thought := [][2]string{{"What waits?", "<think>\nA stage may wait.\n</think>\n\nThe stage."},
		{"How many?", "<think>\nCount them.\n</think>\n\nFour."}}
	for name, c := range map[string]struct {
		talk [][2]string
		from string // what an answer begins with, which its template writes
	}{
		"chatml":                                {said, ""},
		"chatml, another eos":                   {said, ""},
		"llama 2, Prepend":                      {said, " "},
		"llama 2, Metaspace":                    {said, " "},
		"a space before the answer":             {said, " "},
		"a thought after the generation prompt": {thought, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := tunable(t, v, name)
			var rows strings.Builder
			for _, turn := range c.talk {
				row, err := json.Marshal(map[string]any{"messages": []map[string]string{{"role": "user", "content": turn[0]},
					{"role": "assistant", "content": turn[1]}}})
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(&rows, "%s\n", row)
			}
			out := tune(t, dir, rows.String())
			for _, turn := range c.talk {
				var answer strings.Builder
				var report troupe.GenerateReport
				o := troupe.GenerateOptions{ModelOptions: troupe.ModelOptions{From: out},
					TextOptions: troupe.TextOptions{Messages: []chat.Message{{Role: "user", Content: turn[0]}},
						Tokens: 80, Report: &report}}
				err := troupe.Generate(context.Background(), o, func(text []byte) error {
					answer.Write(text)
					return nil
				})
				// A space before what ends the turn is the template's.
				if got := strings.TrimSuffix(answer.String(), " "); err != nil || strings.TrimPrefix(got, c.from) != turn[1] ||
					report.Tokens == o.Tokens {
					t.Errorf("%q is answered by %q in %d tokens, want %q, %v", turn[0], answer.String(), report.Tokens, turn[1], err)
				}
			}
		})
	}
}

// TestPromptsAsTrained: the prompt of a document, given to generate, has the ids that were trained on, whether names of special
// tokens are tokens or text.
func TestPromptsAsTrained(t *testing.T) {
	const rows = `{"prompt":"<|im_start|>user\nWhat waits?<|im_end|>\n<|im_start|>assistant\n","completion":"the stage waits<|im_end|>\n"}
{"prompt":"<|im_start|>user\nHow many?<|im_end|>\n<|im_start|>assistant\n","completion":"a run of four<|im_end|>\n"}
`
	for special, ended := range map[string]string{config.SpecialAsTokens: "", config.SpecialAsText: "<|im_end|>\n"} {
		t.Run(special, func(t *testing.T) {
			t.Parallel()
			v := documents.Read(t) // tunable writes to it
			out := tune(t, tunable(t, v, "rendered pairs that end"), rows, "data.special_tokens="+special)
			for asked, want := range map[string]string{"What waits?": "the stage waits", "How many?": "a run of four"} {
				var answer strings.Builder
				o := troupe.GenerateOptions{ModelOptions: troupe.ModelOptions{From: out},
					TextOptions: troupe.TextOptions{Prompt: "<|im_start|>user\n" + asked +
						"<|im_end|>\n<|im_start|>assistant\n", Tokens: 40}}
				err := troupe.Generate(context.Background(), o, func(text []byte) error {
					answer.Write(text)
					return nil
				})
				if got := answer.String(); err != nil || got != want+ended {
					t.Errorf("%q is answered by %q, want %q, %v", asked, got, want+ended, err)
				}
			}
		})
	}
}

// tunable writes the model of a case, larger, so that it can learn.
func tunable(t *testing.T, v documents.Vectors, name string) string {
	t.Helper()
	for _, c := range v.Cases {
		if c.Name != name {
			continue
		}
		var sizes map[string]any
		if err := json.Unmarshal([]byte(c.Config), &sizes); err != nil {
			t.Fatal(err)
		}
		const hidden, ffn = 32, 64
		sizes["hidden_size"], sizes["intermediate_size"], sizes["num_key_value_heads"], sizes["max_position_embeddings"] = hidden, ffn, 2, 128
		text, err := json.Marshal(sizes)
		if err != nil {
			t.Fatal(err)
		}
		c.Config = string(text)
		for i, one := range c.Tensors {
			shape := one[1].([]any)
			for k, n := range shape {
				switch n.(float64) {
				case 16:
					shape[k] = float64(hidden)
				case 24:
					shape[k] = float64(ffn)
				case 8:
					shape[k] = float64(hidden)
				}
			}
			if len(shape) == 2 {
				c.Tensors[i][2] = 0.15
			}
		}
		return c.Write(t, v.Tokenizers[c.Tokenizer])
	}
	t.Fatalf("no case %q", name)
	return ""
}

// tune trains on documents until the loss on them is below 0.01.
func tune(t *testing.T, dir, rows string, sets ...string) (out string) {
	t.Helper()
	file := filepath.Join(dir, "talk.jsonl")
	documents.WriteFile(t, file, rows)
	text := fmt.Sprintf(`
run = {out = %q, steps = 120, eval_every = 0, checkpoint_every = 0, log_every = 120}
model = {from = %q, context = 96}
data = {train = [%q], val = [%q], format = "documents"}
batch = {sequences = 4, microbatch = 4}
optimizer = {lr = 1e-2, warmup_steps = 5, weight_decay = 0.0}
device = {kind = "cpu", threads = 1}
`, filepath.Join(dir, "out"), dir, file, filepath.Join(dir, "talk2.jsonl"))
	documents.WriteFile(t, filepath.Join(dir, "talk2.jsonl"), rows)
	cfg, err := config.Parse("tune.toml", []byte(text), sets, nil)
	if err != nil {
		t.Fatal(err)
	}
	run, err := troupe.Start(context.Background(), cfg, troupe.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for range run.Events() {
	}
	result, err := run.Wait()
	if err != nil || !(result.LastValLoss < 0.01) {
		t.Fatalf("the loss is %g, %v", result.LastValLoss, err)
	}
	return cfg.Run.Out
}
