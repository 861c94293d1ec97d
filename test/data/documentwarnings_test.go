package data

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/testing/documents"
)

// warningsOf are those of a run's start.
func warningsOf(t *testing.T, dir, rows string, sets ...string) (texts []string) {
	t.Helper()
	file, val := filepath.Join(dir, "train.data"), filepath.Join(dir, "val.data")
	documents.WriteFile(t, file, rows)
	documents.WriteFile(t, val, rows)
	text := fmt.Sprintf("run = {out = %q, steps = 1}\nmodel = {from = %q, context = 24}\ndata = {train = [%q], val = [%q]}\nbatch = {sequences = 1}\ndevice = {kind = 'cpu'}\n",
		filepath.Join(t.TempDir(), "out"), dir, file, val)
	cfg, err := config.Parse("warn.toml", []byte(text), sets, nil)
	if err != nil {
		t.Fatal(err)
	}
	run, err := troupe.Start(context.Background(), cfg, troupe.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for e := range run.Events() {
		if w, ok := e.(troupe.WarningEvent); ok {
			texts = append(texts, w.Text)
		}
	}
	if _, err := run.Wait(); err != nil {
		t.Fatal(err)
	}
	return texts
}

// TestDocumentWarnings: what is doubtful about documents, and about the files of their model, is said at the first start,
// with counts, and what is not, is not.
func TestDocumentWarnings(t *testing.T) {
	v := documents.Read(t)
	const (
		names  = "names of special tokens in data.train are read as tokens"
		asText = "names of special tokens in data.train are read as text"
		ends   = "do not end with an end token"
		pairs  = "\"prompt\": \"<|im_start|>a\", \"completion\": \"b<|im_end|>\"}\n"
		talk   = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}]}\n"
	)
	for name, c := range map[string]struct {
		of, rows string
		sets     []string
		want     []string
		not      string
	}{
		"names": {"rendered pairs", "{" + pairs + "{" + pairs, []string{"data.format=documents"},
			[]string{"4 " + names + `; set data.special_tokens = "text"`}, ""},
		"names that are expected": {"rendered pairs", "{" + pairs, []string{"data.format=documents", "data.special_tokens=tokens"}, nil,
			"names of special"},
		"names as text": {"rendered pairs", "{" + pairs, []string{"data.format=documents", "data.special_tokens=text"},
			[]string{"2 " + asText + `; set data.special_tokens = "tokens"`}, ""},
		"names in a text": {"rendered pairs", strings.Repeat("One tale.<|endoftext|>", 20), nil,
			[]string{"40 names of special tokens in the data are read as tokens"}, ""},
		"no names": {"rendered pairs", strings.Repeat("One tale.", 20), nil, nil, "names of special"},
		"no end": {"no end", talk + talk + talk, []string{"data.format=documents"},
			[]string{"3 of 3 answers in data.train " + ends}, ""},
		"another end": {"chatml, another eos", talk, []string{"data.format=documents"},
			[]string{`1 of 1 answers in data.train end with "<|im_end|>"`}, ends},
		"the model's end": {"chatml", talk, []string{"data.format=documents"}, nil, "answers"},
		"an end by the next turn": {"the next turn is the end", strings.ReplaceAll(talk, "\"b\"}]",
			"\"b\"}, {\"role\": \"user\", \"content\": \"c\"}]"), []string{"data.format=documents"}, nil, ends},
		"a name that is not there": {"llama 2, Prepend", talk, []string{"data.format=documents"},
			[]string{"the chat template uses bos_token and eos_token, but tokenizer_config.json does not define it"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := v.Write(t, c.of)
			if name == "a name that is not there" {
				documents.WriteFile(t, filepath.Join(dir, "tokenizer_config.json"), "{}")
				documents.WriteFile(t, filepath.Join(dir, "chat_template.jinja"),
					"{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ eos_token }}{% endfor %}")
			}
			got := warningsOf(t, dir, c.rows, c.sets...)
			for _, want := range c.want {
				if !slices.ContainsFunc(got, func(text string) bool { return strings.Contains(text, want) }) {
					t.Errorf("none of %q says %q", got, want)
				}
			}
			if c.not != "" && slices.ContainsFunc(got, func(text string) bool { return strings.Contains(text, c.not) }) {
				t.Errorf("%q, of which none should say %q", got, c.not)
			}
		})
	}
}

// TestSpecialTokensOfARun: what names of special tokens are is a run's for good.
func TestSpecialTokensOfARun(t *testing.T) {
	v := documents.Read(t)
	const of = "rendered pairs"
	dir, out := v.Write(t, of), filepath.Join(t.TempDir(), "out")
	file := filepath.Join(dir, "train.jsonl")
	documents.WriteFile(t, file, strings.Repeat("{\"prompt\": \"<|im_start|>a\", \"completion\": \"b<|im_end|>\"}\n", 2)+
		"{\"prompt\": \"a\", \"completion\": \"b\"}\n")
	read := func(steps int, sets ...string) (troupe.Result, error) {
		text := fmt.Sprintf("run = {out = %q, steps = %d, eval_every = 0}\nmodel = {from = %q, context = 24}\ndata = {train = [%q], format = 'documents'}\nbatch = {sequences = 1}\ndevice = {kind = 'cpu'}\n", out, steps, dir, file)
		cfg, err := config.Parse("run.toml", []byte(text), sets, nil)
		if err != nil {
			t.Fatal(err)
		}
		run, err := troupe.Start(context.Background(), cfg, troupe.Options{})
		if err != nil {
			return troupe.Result{}, err
		}
		for range run.Events() {
		}
		return run.Wait()
	}
	if _, err := read(1, "data.special_tokens=text"); err != nil {
		t.Fatal(err)
	}
	if _, err := read(2, "data.special_tokens=tokens"); err == nil || !strings.Contains(err.Error(), "data.special_tokens") {
		t.Errorf("a run with names as text continues with tokens: %v", err)
	}
	again, err := read(2)
	if err != nil {
		t.Fatal(err)
	}
	if stored, err := os.ReadFile(filepath.Join(again.Dir, "config.toml")); err != nil ||
		!strings.Contains(string(stored), `special_tokens = "text"`) {
		t.Errorf("it continues with other names: %s, %v", stored, err)
	}
}

// TestTokenizerFromElsewhere: a run from scratch ends documents as the folder of its tokenizer says, and does so
// when it is resumed.
func TestTokenizerFromElsewhere(t *testing.T) {
	v := documents.Read(t)
	const of = "rendered pairs"
	dir, out := v.Write(t, of), filepath.Join(t.TempDir(), "out")
	file := filepath.Join(dir, "train.jsonl")
	documents.WriteFile(t, file, strings.Repeat("{\"prompt\": \"a\", \"completion\": \"b\"}\n", 8))
	for steps := 1; steps <= 2; steps++ {
		text := fmt.Sprintf("run = {out = %q, steps = %d, eval_every = 0}\nmodel = {layers = 1, hidden = 16, heads = 2, context = 24}\ndata = {train = [%q], format = 'documents', tokenizer = %q}\nbatch = {sequences = 1}\ndevice = {kind = 'cpu'}\n", out, steps, file, dir)
		cfg, err := config.Parse("run.toml", []byte(text), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		run, err := troupe.Start(context.Background(), cfg, troupe.Options{})
		if err != nil {
			t.Fatal(err)
		}
		tokens := int64(0)
		for e := range run.Events() {
			if s, ok := e.(troupe.StepEvent); ok {
				tokens = s.Tokens
			}
		}
		if _, err := run.Wait(); err != nil {
			t.Fatal(err)
		}
		if want := int64(2 * steps); tokens != want { // a and b; what ends them is the last target
			t.Errorf("start %d: %d tokens, want %d", steps, tokens, want)
		}
	}
}
