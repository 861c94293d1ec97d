// Package documents provides test vectors: documents encoded by the Python package transformers, with small models.
// vectors.py makes them.
package documents

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/internal/safetensors"
)

//go:embed vectors.json.gz
var vectors []byte

// Vectors are documents as encoded by transformers.
type Vectors struct {
	Tokenizers map[string]json.RawMessage
	Cases      []Case
}

// Case is a model folder and its documents.
type Case struct {
	Name, Tokenizer, Config, Rows string
	Files                         map[string]string
	SpecialTokens                 string `json:"special_tokens"`
	Documents                     [][2][]int32
	Loss                          float64
	Targets                       int64
	Tensors                       [][4]any
}

// Read reads the stored vectors.
func Read(t testing.TB) Vectors { return read(t, bytes.NewReader(vectors)) }

// ReadFile reads vectors from a file that vectors.py wrote.
func ReadFile(t testing.TB, file string) Vectors {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	return read(t, f)
}

func read(t testing.TB, from io.Reader) (v Vectors) {
	t.Helper()
	r, err := gzip.NewReader(from)
	if err == nil {
		err = json.NewDecoder(r).Decode(&v)
	}
	if err != nil || len(v.Cases) == 0 {
		t.Fatalf("%d cases, %v", len(v.Cases), err)
	}
	return v
}

// Write creates the model folder of the case with a name.
func (v Vectors) Write(t testing.TB, name string) string {
	t.Helper()
	for _, c := range v.Cases {
		if c.Name == name {
			return c.Write(t, v.Tokenizers[c.Tokenizer])
		}
	}
	t.Fatalf("no case %q", name)
	return ""
}

// Joined is 1 if all documents are texts: these are evaluated as one text, so the loss of the vectors does not apply.
func (c Case) Joined() int64 {
	if strings.Contains(c.Rows, `{"text"`) {
		return 1
	}
	return 0
}

// Write creates the model folder.
func (c Case) Write(t testing.TB, tokenizer []byte) string {
	t.Helper()
	dir := t.TempDir()
	put := func(name, text string) { WriteFile(t, filepath.Join(dir, name), text) }
	var tensors []safetensors.Tensor
	for _, one := range c.Tensors {
		var shape []int
		for _, n := range one[1].([]any) {
			shape = append(shape, int(n.(float64)))
		}
		name := one[0].(string)
		tensors = append(tensors, safetensors.F32(name, shape, Formula(name, shape, one[2].(float64), one[3].(float64))))
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

// WriteFile writes a file for a test.
func WriteFile(t testing.TB, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Formula returns the values of the formula in testdata/hf/forward.py.
func Formula(name string, shape []int, scale, offset float64) []float32 {
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
