package infer_test

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/infer"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/testing/documents"
)

// TestDocumentLosses: a model's loss on documents is what torch makes of the whole rendered text.
func TestDocumentLosses(t *testing.T) { compareLosses(t, documents.Read(t)) }

// TestPublishedDocumentLosses is make check-chat: the templates of published models.
func TestPublishedDocumentLosses(t *testing.T) {
	folder := os.Getenv("TROUPE_CHAT_TEMPLATES")
	if folder == "" {
		t.Skip("make check-chat sets TROUPE_CHAT_TEMPLATES, a folder that internal/testing/documents/vectors.py has filled")
	}
	compareLosses(t, documents.ReadFile(t, filepath.Join(folder, "documents.json.gz")))
}

func compareLosses(t *testing.T, v documents.Vectors) {
	for _, c := range v.Cases {
		t.Run(c.Name, func(t *testing.T) {
			dir := c.Write(t, v.Tokenizers[c.Tokenizer])
			o := infer.EvalOptions{ModelOptions: infer.ModelOptions{From: dir}, Data: []string{filepath.Join(dir, "rows.jsonl")},
				Format: "documents", SpecialTokens: c.SpecialTokens}
			got, err := infer.Evaluate(t.Context(), o)
			if targets := c.Targets - c.Joined(); err != nil || targets == c.Targets &&
				(got.Tokens != c.Targets || math.Abs(got.Loss-c.Loss) > 1e-5) {
				t.Errorf("%d targets with the loss %.6f, want %d with %.6f, %v", got.Tokens, got.Loss, c.Targets, c.Loss, err)
			}
		})
	}
}

// TestExportNamesEnds: an export names all tokens at which generation stops.
func TestExportNamesEnds(t *testing.T) {
	v := documents.Read(t)
	for of, c := range map[string]struct {
		generation, want string
		warned           bool // only about a file that the model came with
	}{
		"chatml, another eos": {"", "[\n    0,\n    4\n  ]", false},
		"chatml":              {`{"eos_token_id": 4, "top_k": 3}`, `{"eos_token_id": 4, "top_k": 3}`, false},
		"llama 2, Prepend":    {`{"eos_token_id": 1}`, "[\n    1,\n    2\n  ]", true},
	} {
		dir := v.Write(t, of)
		if c.generation != "" {
			documents.WriteFile(t, filepath.Join(dir, rundir.GenerationFile), c.generation)
		}
		to := filepath.Join(t.TempDir(), "export")
		e, err := infer.Export(t.Context(), infer.ExportOptions{From: dir, To: to})
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(to, rundir.GenerationFile))
		if err != nil || !strings.Contains(string(got), c.want) || c.warned != (len(e.Warnings) > 0) {
			t.Errorf("%s: %s, want %s, %q, %v", of, got, c.want, e.Warnings, err)
		}
	}
}
