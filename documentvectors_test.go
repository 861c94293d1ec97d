package troupe

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/data"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/safetensors"
)

// documentVectors are documents as transformers encodes them: see testdata/documents/vectors.py.
type documentVectors struct {
	Tokenizers map[string]json.RawMessage
	Cases      []documentCase
}

type documentCase struct {
	Name, Tokenizer, Config, Rows string
	Files                         map[string]string
	SpecialTokens                 string `json:"special_tokens"`
	Documents                     [][2][]int32
	Loss                          float64
	Targets                       int64
	Tensors                       [][4]any
}

func readDocumentVectors(t *testing.T, file string) (v documentVectors) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	r, err := gzip.NewReader(f)
	if err == nil {
		err = json.NewDecoder(r).Decode(&v)
	}
	if err != nil || len(v.Cases) == 0 {
		t.Fatalf("%d cases, %v", len(v.Cases), err)
	}
	return v
}

// TestDocumentVectors: which ids documents have, which of them are learned, and a model's loss on them
// are what transformers and torch make of the whole rendered text.
func TestDocumentVectors(t *testing.T) {
	readDocumentVectors(t, "testdata/documents/vectors.json.gz").check(t)
}

// TestPublishedDocuments is make check-chat: the templates of published models.
func TestPublishedDocuments(t *testing.T) {
	folder := os.Getenv("TROUPE_CHAT_TEMPLATES")
	if folder == "" {
		t.Skip("make check-chat sets TROUPE_CHAT_TEMPLATES, a folder that testdata/documents/vectors.py has filled")
	}
	readDocumentVectors(t, filepath.Join(folder, "documents.json.gz")).check(t)
}

func (v documentVectors) check(t *testing.T) {
	for _, c := range v.Cases {
		t.Run(c.Name, func(t *testing.T) {
			dir := c.write(t, v.Tokenizers[c.Tokenizer])
			rows := filepath.Join(dir, "rows.jsonl")
			c.compareDocuments(t, dir, rows)
			got, err := Evaluate(context.Background(), EvalOptions{ModelOptions: ModelOptions{From: dir}, Data: []string{rows}, Format: "documents", SpecialTokens: c.SpecialTokens})
			if targets := c.Targets - c.joined(); err != nil || targets == c.Targets && (got.Tokens != c.Targets || math.Abs(got.Loss-c.Loss) > 1e-5) {
				t.Errorf("%d targets with the loss %.6f, want %d with %.6f, %v", got.Tokens, got.Loss, c.Targets, c.Loss, err)
			}
		})
	}
}

// joined is 1 where all documents are texts: they are evaluated as one, which the vectors' loss is not of.
func (c documentCase) joined() int64 {
	if strings.Contains(c.Rows, `{"text"`) {
		return 1
	}
	return 0
}

// write makes the model's directory.
func (c documentCase) write(t *testing.T, tokenizer []byte) string {
	t.Helper()
	dir := t.TempDir()
	put := func(name, text string) { writeFile(t, filepath.Join(dir, name), text) }
	var tensors []safetensors.Tensor
	for _, one := range c.Tensors {
		var shape []int
		for _, n := range one[1].([]any) {
			shape = append(shape, int(n.(float64)))
		}
		name := one[0].(string)
		tensors = append(tensors, safetensors.F32(name, shape, formula(name, shape, one[2].(float64), one[3].(float64))))
	}
	var weights strings.Builder
	if err := safetensors.Write(&weights, nil, tensors); err != nil {
		t.Fatal(err)
	}
	put("model.safetensors", weights.String())
	put("config.json", c.Config)
	put("tokenizer.json", string(tokenizer))
	put("rows.jsonl", c.Rows)
	for name, text := range c.Files {
		put(name, text)
	}
	return dir
}

func writeFile(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// formula is that of testdata/hf/forward.py.
func formula(name string, shape []int, scale, offset float64) []float32 {
	n := 1
	for _, s := range shape {
		n *= s
	}
	base := uint32(2166136261)
	for _, b := range []byte(name) {
		base = (base ^ uint32(b)) * 16777619
	}
	values := make([]float32, n)
	for i := range values {
		h := base ^ uint32(i)*0x9E3779B1
		h = (h ^ h>>16) * 0x7FEB352D
		h = (h ^ h>>15) * 0x846CA68B
		h ^= h >> 16
		values[i] = float32(offset + scale*(float64(h%4097)-2048)/2048)
	}
	return values
}

func (c documentCase) compareDocuments(t *testing.T, dir, rows string) {
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
	r, err := newDocumentReader(tok, talk, c.SpecialTokens)
	if err != nil {
		t.Fatal(err)
	}
	text, err := data.ReadText([]string{rows})
	if err != nil {
		t.Fatal(err)
	}
	docs, err := readDocuments(text, r)
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
