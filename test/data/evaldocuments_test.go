package data

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/data"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// pair is a document whose prompt and completion have so many bytes, which are its tokens.
func pair(prompt, completion int) string {
	return fmt.Sprintf(`{"prompt": %q, "completion": %q}`+"\n", strings.Repeat("p", prompt), strings.Repeat("c", completion))
}

// TestEvaluateSaysWhatDoesNotFit: the counts that a run warns of are an evaluation's, too, and a context that holds
// all has the loss over all targets.
func TestEvaluateSaysWhatDoesNotFit(t *testing.T) {
	c := testrun.TinyModels["llama"]
	c.Context = 64
	from := testrun.Directory(t, c, testrun.TensorsOf(t, c), nil)
	file := testrun.Write(t, filepath.Join(t.TempDir(), "cut.jsonl"), pair(3, 5)+pair(10, 20)+"\n"+pair(30, 5)+pair(17, 4))
	o := troupe.EvalOptions{ModelOptions: troupe.ModelOptions{From: from}, Data: []string{file}, Format: "documents"}
	whole, err := troupe.Evaluate(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if want := (troupe.DocumentCounts{Total: 4, Tokens: 94, Learned: 34, Longest: 35}); whole.Tokens != 34 || whole.Documents == nil || *whole.Documents != want ||
		len(whole.Warnings) > 0 {
		t.Errorf("a context that holds all: %+v, %+v", whole, whole.Documents)
	}
	o.Context = 16
	cut, err := troupe.Evaluate(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if want := (troupe.DocumentCounts{Total: 4, Cut: 1, Dropped: 2, TargetsLeftOut: 22, Tokens: 25, Learned: 12, Longest: 35}); cut.Tokens != 12 ||
		cut.Documents == nil || *cut.Documents != want {
		t.Errorf("a context of 16: %+v, want %+v", cut.Documents, want)
	}
	for i, want := range []string{"1 of 4 documents are longer than the context of 16 tokens and were cut",
		"2 of 4 documents have no token to learn within the context of 16 tokens and were skipped; of 34 tokens to learn, 22 are lost"} {
		if len(cut.Warnings) != 2 || !strings.Contains(cut.Warnings[i], want) {
			t.Errorf("warnings %q, want %q", cut.Warnings, want)
		}
	}
	text, err := json.Marshal(cut)
	if err != nil || !strings.Contains(string(text),
		`"documents":{"total":4,"cut":1,"dropped":2,"targets_left_out":22,"tokens":25,"learned":12,"longest":35}`) {
		t.Errorf("as JSON: %s, %v", text, err)
	}
	// A run says the same.
	run := testrun.Start(t, testrun.FromConfig(t, from, "data.train="+file, "data.val="+
		testrun.Write(t, filepath.Join(t.TempDir(), "val.jsonl"), pair(3, 5)), "data.format=documents", "model.context=16"))
	_, events := testrun.Finish(t, run)
	if !slices.ContainsFunc(testrun.EventsOf[troupe.WarningEvent](events), func(e troupe.WarningEvent) bool {
		return strings.Contains(e.Text, "1 of 5 documents are longer than the context of 16 tokens and were cut")
	}) {
		t.Errorf("the run's warnings: %v", testrun.EventsOf[troupe.WarningEvent](events))
	}
	for _, tt := range []struct {
		name string
		set  func(*troupe.EvalOptions)
		want []string
	}{
		{"refuse", func(o *troupe.EvalOptions) { o.TooLong = "refuse" }, []string{"document 2 of 4", "cut.jsonl, row 2)",
			"30 tokens, but the limit is 17"}},
		{"another word", func(o *troupe.EvalOptions) { o.TooLong = "drop" }, []string{`"drop"`, "cut or refuse"}},
		{"of a text", func(o *troupe.EvalOptions) { o.TooLong, o.Format = "cut", "text" }, []string{"only for the format documents"}},
		{"nothing fits", func(o *troupe.EvalOptions) {
			o.Context = 9
			o.Data = []string{testrun.Write(t, filepath.Join(t.TempDir(), "long.jsonl"), "\n"+pair(30, 5)+pair(17, 4))}
		}, []string{"none of 2 documents has a token to learn within the context of 9 tokens", "long.jsonl, row 3, needs a context of 17"}},
		{"nothing to learn", func(o *troupe.EvalOptions) {
			o.Data = []string{testrun.Write(t, filepath.Join(t.TempDir(), "empty.jsonl"), "\n"+pair(3, 0)+pair(1, 0))}
		}, []string{"none of 2 documents has a token to learn (the first is ", "empty.jsonl, row 2)"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := o
			tt.set(&o)
			_, err := troupe.Evaluate(t.Context(), o)
			if err == nil || strings.Contains(err.Error(), "data.val") || strings.HasPrefix(tt.name, "nothing") &&
				!errors.Is(err, data.ErrTooShort) {
				t.Fatalf("%v", err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v doesn't say %q", err, want)
				}
			}
		})
	}
}

// endTokenizer is byte-level BPE of single bytes, with an end token of a name, and perhaps a dummy space before each text.
func endTokenizer(end string, prefix bool) string {
	var vocab []string
	for b := '!'; b <= '~'; b++ {
		vocab = append(vocab, fmt.Sprintf("%q: %d", string(b), b-'!'))
	}
	vocab = append(vocab, `"Ġ": 100`)
	return fmt.Sprintf(`{"version": "1.0", "added_tokens": [{"id": 101, "content": %q, "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false}],
		"normalizer": null, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": %v, "trim_offsets": true, "use_regex": false}, "post_processor": null,
		"decoder": {"type": "ByteLevel"}, "model": {"type": "BPE", "vocab": {%s}, "merges": []}}`, end, prefix, strings.Join(vocab, ", "))
}

// TestBitsPerByteCountsText: the name of a token that ends documents is not text, however long it is, in
// documents and in ids.
func TestBitsPerByteCountsText(t *testing.T) {
	c := testrun.TinyModels["llama"]
	c.Vocab = 128
	tensors := testrun.TensorsOf(t, c)
	const documents = 8
	var texts strings.Builder
	var ids []byte
	for range documents {
		texts.WriteString("{\"text\": \"a b c d e f\"}\n")
		for _, b := range []byte("a b c d e f") {
			id := b - '!'
			if b == ' ' {
				id = 100
			}
			ids = append(ids, id, 0)
		}
		ids = append(ids, 101, 0)
	}
	files := map[string]string{
		"documents": testrun.Write(t, filepath.Join(t.TempDir(), "d.jsonl"), texts.String()),
		"uint16":    testrun.Write(t, filepath.Join(t.TempDir(), "d.bin"), string(ids)),
	}
	for _, tt := range []struct {
		end    string
		prefix bool
	}{{"<|im_end|>", false}, {"<e>", false}, {"<" + strings.Repeat("long", 20) + ">", false}, {"<e>", true}} {
		dir := testrun.Directory(t, c, tensors, map[string]string{"eos_token_id": "101"})
		testrun.Write(t, filepath.Join(dir, "tokenizer.json"), endTokenizer(tt.end, tt.prefix))
		for format, file := range files {
			got, err := troupe.Evaluate(t.Context(), troupe.EvalOptions{ModelOptions: troupe.ModelOptions{From: dir}, Data: []string{file},
				Format: format})
			if err != nil {
				t.Fatal(err)
			}
			targets, bytes := float64(documents*12-1), float64(documents*11-1) // the first byte is no target
			if tt.prefix && format == "documents" {                            // nor is the space that is put in front of it
				targets, bytes = documents*13-1, documents*11
			}
			want := targets * got.Loss / math.Ln2 / bytes
			if float64(got.Tokens) != targets || !(math.Abs(got.BitsPerByte-want) < 1e-9) {
				t.Errorf("%s, an end token called %s: %g bits per byte over %d targets, want %g over %g", format, tt.end, got.BitsPerByte, got.Tokens,
					want, targets)
			}
		}
	}
}
