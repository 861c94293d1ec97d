package data

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// smallTokenizer is a byte-level tokenizer.json with merges of its own: the tokens of bytes,
// then "th" and "the".
func smallTokenizer(t *testing.T, more ...string) string {
	t.Helper()
	vocab := make(map[string]int)
	next := rune(256)
	for b := range rune(256) {
		r := b
		if printable := '!' <= b && b <= '~' || '¡' <= b && b <= '¬' || '®' <= b; !printable {
			r = next
			next++
		}
		vocab[string(r)] = int(b)
	}
	for _, word := range append([]string{"th", "the"}, more...) {
		vocab[word] = len(vocab)
	}
	text, err := json.Marshal(vocab)
	if err != nil {
		t.Fatal(err)
	}
	return `{"version": "1.0", "added_tokens": [], "normalizer": null, "post_processor": null,
		"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
		"decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
		"model": {"type": "BPE", "dropout": null, "unk_token": null, "fuse_unk": false, "byte_fallback": false,
		"vocab": ` + string(text) + `, "merges": ["t h", "th e"]}}`
}

// TestTextsStay: a run from a Hugging Face directory reads text by its tokenizer, and its
// checkpoints have the directory's files of text as they are and its config.json's own keys.
func TestTextsStay(t *testing.T) {
	c := testrun.TinyModels["llama"]
	c.Vocab = 260
	dir := testrun.Directory(t, c, testrun.TensorsOf(t, c), map[string]string{"transformers_version": `"5.23.0"`, "eos_token_id": "[3, 4]",
		"dtype": `"bfloat16"`, "torch_dtype": `"bfloat16"`})
	files := map[string]string{
		"tokenizer.json":         smallTokenizer(t),
		"tokenizer_config.json":  `{"eos_token":   "the", "odd": [1,2]}`,
		"vocab.json":             "{ }",
		"merges.txt":             "#version: 0.2\nt h\n",
		"chat_template.jinja":    "{{ messages }}",
		"generation_config.json": `{"eos_token_id":3}`,
	}
	for name, text := range files {
		testrun.Write(t, filepath.Join(dir, name), text)
	}
	cfg := testrun.FromConfig(t, dir)
	out := cfg.Run.Out
	run := testrun.Start(t, cfg)
	testrun.Finish(t, run)
	again := testrun.FromConfig(t, dir, "run.out="+out, "run.steps=2")
	testrun.Finish(t, testrun.Start(t, again))
	for step := 1; step <= 2; step++ {
		for name, text := range files {
			if got := testrun.Read(t, filepath.Join(testrun.StepDir(out, step), name)); got != text {
				t.Errorf("step %d: %s is %.200q", step, name, got)
			}
		}
		model := testrun.Read(t, filepath.Join(testrun.StepDir(out, step), "config.json"))
		for _, want := range []string{`"transformers_version": "5.23.0"`, `"dtype": "float32"`, `"torch_dtype": "float32"`, "3,"} {
			if !strings.Contains(model, want) {
				t.Errorf("step %d: config.json has no %s:\n%s", step, want, model)
			}
		}
	}

	// A tokenizer of its own, by a file or a folder.
	own := filepath.Join(t.TempDir(), "own")
	testrun.Write(t, filepath.Join(own, "tokenizer.json"), smallTokenizer(t, "he"))
	for _, path := range []string{own, filepath.Join(own, "tokenizer.json")} {
		cfg := testrun.FromConfig(t, dir, "data.tokenizer="+path)
		testrun.Finish(t, testrun.Start(t, cfg))
		if got := testrun.Read(t, filepath.Join(testrun.StepDir(cfg.Run.Out, 1), "tokenizer.json")); got != smallTokenizer(t, "he") {
			t.Errorf("%s: the tokenizer is %.200q", path, got)
		}
		if _, err := os.Stat(filepath.Join(testrun.StepDir(cfg.Run.Out, 1), "merges.txt")); err == nil {
			t.Errorf("%s: the other tokenizer's merges are there", path)
		}
		scratch := testrun.NewConfig(t, filepath.Join(t.TempDir(), "out"), "data.tokenizer="+path)
		run := testrun.Start(t, scratch)
		testrun.Finish(t, run)
		if n := run.Info().Vocab; n != 259 {
			t.Errorf("%s: the vocabulary is %d", path, n)
		}
	}

	testrun.Write(t, filepath.Join(own, "tokenizer.json"), smallTokenizer(t, "he", "hee", "heee"))
	testrun.Refused(t, testrun.FromConfig(t, dir, "data.tokenizer="+own), troupe.Options{}, nil, "260", "261")
	testrun.Write(t, filepath.Join(dir, "tokenizer.json"), smallTokenizer(t, "he", "hee", "heee"))
	testrun.Refused(t, testrun.FromConfig(t, dir), troupe.Options{}, nil, "260", "261")
	testrun.Refused(t, testrun.FromConfig(t, dir, "data.tokenizer=./nowhere"), troupe.Options{}, nil, "data.tokenizer", "nowhere")
}
