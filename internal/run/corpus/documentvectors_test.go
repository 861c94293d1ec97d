package corpus

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/data"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/testing/documents"
	"github.com/troupe-ml/troupe/internal/tokenizer"
)

// TestDocumentVectors: which ids documents have, and which of them are learned, is what transformers makes of the
// whole rendered text. Package infer's test has the losses.
func TestDocumentVectors(t *testing.T) { compareAll(t, documents.Read(t)) }

// TestPublishedDocuments is make check-chat: the templates of published models.
func TestPublishedDocuments(t *testing.T) {
	folder := os.Getenv("TROUPE_CHAT_TEMPLATES")
	if folder == "" {
		t.Skip("make check-chat sets TROUPE_CHAT_TEMPLATES, a folder that internal/testing/documents/vectors.py has filled")
	}
	compareAll(t, documents.ReadFile(t, filepath.Join(folder, "documents.json.gz")))
}

func compareAll(t *testing.T, v documents.Vectors) {
	for _, c := range v.Cases {
		t.Run(c.Name, func(t *testing.T) {
			dir := c.Write(t, v.Tokenizers[c.Tokenizer])
			compareDocuments(t, c, dir, filepath.Join(dir, "rows.jsonl"))
		})
	}
}

// TestIDsOfSpecialTokens: the ids with names of special tokens as text are not taken for those with names as tokens,
// where both are kept.
func TestIDsOfSpecialTokens(t *testing.T) {
	as := func(special string) any {
		r, err := newDocumentReader(tokenizer.Bytes{}, rundir.Talk{}, special, nil)
		if err != nil {
			t.Fatal(err)
		}
		return r.decides()
	}
	if a, b := fmt.Sprint(as(config.SpecialAsText)), fmt.Sprint(as(config.SpecialAsTokens)); a == b {
		t.Errorf("both are kept as %s", a)
	}
}

func compareDocuments(t *testing.T, c documents.Case, dir, rows string) {
	t.Helper()
	ckpt, err := checkpoint.OpenAt(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ckpt.Close() }()
	tok, err := rundir.ReadTokenizer(ckpt)
	if err != nil {
		t.Fatal(err)
	}
	talk, err := rundir.ReadTalk(ckpt, tok)
	if err != nil {
		t.Fatal(err)
	}
	r, err := newDocumentReader(tok, talk, c.SpecialTokens, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := data.ReadText([]string{rows})
	if err != nil {
		t.Fatal(err)
	}
	docs, err := readAll(text, r)
	if err != nil || len(docs) != len(c.Documents) {
		t.Fatalf("%d documents, want %d, %v", len(docs), len(c.Documents), err)
	}
	show := func(ids []int32, learn []bool) string {
		var b strings.Builder
		for i, id := range ids {
			name, _ := tok.Token(id)
			if learn[i] {
				name = "*" + name
			}
			fmt.Fprintf(&b, " %s", name)
		}
		return b.String()
	}
	for i, d := range docs {
		ids, learn := c.Documents[i][0], make([]bool, len(c.Documents[i][1]))
		for k, l := range c.Documents[i][1] {
			learn[k] = l == 1
		}
		if !slices.Equal(d.IDs, ids) || !slices.Equal(d.Learn, learn) {
			t.Errorf("document %d is\n%s\nwant\n%s", i+1, show(d.IDs, d.Learn), show(ids, learn))
		}
	}
}
