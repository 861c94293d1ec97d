package data

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
	"github.com/troupe-ml/troupe/internal/tokenizer"
	"github.com/troupe-ml/troupe/stages"
)

// TestExportNamesTokenizer: an export says which class takes its tokenizer as it is, and where transformers takes
// another one all the same.
func TestExportNamesTokenizer(t *testing.T) {
	dir := exportsOfFamilies(t)
	for _, family := range []string{"gpt2", "llama", "mistral", "qwen2", "qwen3"} {
		for _, kind := range []string{"chars", "bytes", "trained"} {
			var config map[string]any
			if err := json.Unmarshal([]byte(testrun.Read(t, filepath.Join(dir, family+"-"+kind, "tokenizer_config.json"))), &config); err != nil ||
				config["tokenizer_class"] != "PreTrainedTokenizerFast" {
				t.Errorf("%s, %s: %v, %v", family, kind, config, err)
			}
			e, err := troupe.Export(t.Context(), troupe.ExportOptions{From: filepath.Join(dir, family+"-"+kind),
				To: filepath.Join(t.TempDir(), "again")})
			if err != nil {
				t.Fatal(err)
			}
			if said := len(e.Warnings) == 1 && strings.Contains(e.Warnings[0],
				"Qwen2Tokenizer for models of family qwen2"); said != (family == "qwen2") || len(e.Warnings) > 1 {
				t.Errorf("%s, %s: it warns %q", family, kind, e.Warnings)
			}
		}
	}
}

// exportsOfFamilies exports a run of each family with each kind of tokenizer, into folders such as gpt2-chars.
func exportsOfFamilies(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	text := testrun.Read(t, "testdata/troupe.txt")
	trainer := tokenizer.NewTrainer()
	trainer.Add([]byte(text))
	file, _, err := trainer.Train(300, []string{"<|endoftext|>"})
	if err != nil {
		t.Fatal(err)
	}
	trained := testrun.Write(t, filepath.Join(dir, "tokenizer.json"), string(file)) // alone, without a tokenizer_config.json
	for _, family := range []string{"gpt2", "llama", "mistral", "qwen2", "qwen3"} {
		for kind, name := range map[string]string{"chars": "chars", "bytes": "bytes", "trained": trained} {
			out := filepath.Join(dir, "run-"+family+"-"+kind)
			exportTrained(t, out, filepath.Join(dir, family+"-"+kind), family, name)
		}
	}
	return dir
}

// exportTrained exports a run of two steps.
func exportTrained(t *testing.T, run, to, family, tok string) {
	t.Helper()
	testrun.Train(t, run, "model.family="+family, "model.layers=1", "data.tokenizer="+tok, "run.steps=2", "run.eval_every=0",
		"run.checkpoint_every=0")
	if _, err := troupe.Export(t.Context(), troupe.ExportOptions{From: run, To: to}); err != nil {
		t.Fatal(err)
	}
}

// exportKinds exports a model for each kind of published tokenizer among the vectors of package hf, and one of each
// family that exportsOfFamilies leaves out. It returns how many there are.
func exportKinds(t *testing.T, dir string) int {
	t.Helper()
	packed, err := os.Open(filepath.Join("internal", "tokenizer", "hf", "testdata", "vectors.json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = packed.Close() }()
	r, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct {
		Name      string
		Tokenizer json.RawMessage
	}
	if err := json.NewDecoder(r).Decode(&vectors); err != nil {
		t.Fatal(err)
	}
	kinds := map[string]string{"Qwen3.5": "qwen35", "Gemma": "gemma", "Unigram, a charsmap (T5)": "t5", "Unigram, byte fallback (Helium)": "helium",
		"WordPiece (BERT)": "bert", "ignore_merges, an unknown pattern, a template": "o200k", "intersections of classes (Kimi)": "kimi"}
	for _, v := range vectors {
		if kind := kinds[v.Name]; kind != "" {
			file := testrun.Write(t, filepath.Join(dir, "run-"+kind+".json"), string(v.Tokenizer))
			exportTrained(t, filepath.Join(dir, "run-llama-"+kind), filepath.Join(dir, "llama-"+kind), "llama", file)
			delete(kinds, v.Name)
		}
	}
	if len(kinds) > 0 {
		t.Fatalf("not among the vectors: %v", kinds)
	}
	n := 7
	for _, family := range stages.LanguageFamilies() {
		if to := filepath.Join(dir, family+"-trained"); !exists(to) {
			exportTrained(t, filepath.Join(dir, "run-"+family), to, family, filepath.Join(dir, "tokenizer.json"))
			n++
		}
	}
	return n
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// TestTokenizersInTransformers is part of make check-hf: AutoTokenizer gives the ids of tokenizer.json, unless the export
// has warned, and has no token that the model has no row for.
func TestTokenizersInTransformers(t *testing.T) {
	python := os.Getenv("TROUPE_PYTHON")
	if python == "" {
		t.Skip("make check-hf sets TROUPE_PYTHON, a Python with transformers")
	}
	const program = `
import os, sys, tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast
dir, texts = sys.argv[1], [open(sys.argv[2]).read()[:2000], "it's 42 stages!\n\n  two  spaces: 1234567, we'll\r\n\tsee"]
for name in sorted(n for n in os.listdir(dir) if os.path.isdir(os.path.join(dir, n)) and not n.startswith("run-")):
    path = os.path.join(dir, name)
    want = tokenizers.Tokenizer.from_file(os.path.join(path, "tokenizer.json"))
    for load in AutoTokenizer, PreTrainedTokenizerFast:
        got = load.from_pretrained(path)
        same = len(got) == want.get_vocab_size()
        for text in texts:
            text = "".join(c for c in text if name.split("-")[1] != "chars" or want.token_to_id(c) is not None)
            same = same and got(text)["input_ids"] == want.encode(text).ids
        print(name, load.__name__, type(got).__name__, "same" if same else "other")
`
	dir := exportsOfFamilies(t)
	kinds := exportKinds(t, dir)
	cmd := exec.CommandContext(t.Context(), python, "-c", program, dir, "testdata/troupe.txt")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, errs.String())
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	for _, line := range lines {
		t.Log(line)
		warned := strings.HasPrefix(line, "qwen2-") && strings.Contains(line, " AutoTokenizer ")
		if strings.HasSuffix(line, " other") && !warned {
			t.Errorf("other ids: %s", line)
		}
	}
	if len(lines) != 30+2*kinds {
		t.Errorf("%d lines", len(lines))
	}
}
