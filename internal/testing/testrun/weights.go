package testrun

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/safetensors"
	"github.com/troupe-ml/troupe/internal/tokenizer"
	"github.com/troupe-ml/troupe/stages"
)

// TinyModels are models whose folders take a few kilobytes.
var TinyModels = map[string]stages.Config{
	"gpt2":  {Family: stages.GPT2, Layers: 2, Hidden: 8, Heads: 2, KVHeads: 2, FFN: 16, Context: 16, Vocab: 256, Tie: true},
	"llama": {Family: stages.Llama, Layers: 2, Hidden: 8, Heads: 2, KVHeads: 1, FFN: 16, Context: 16, Vocab: 256, RopeTheta: 10000},
}

// TensorsOf returns a model's weights as they are in its files.
func TensorsOf(t *testing.T, c stages.Config) []safetensors.Tensor {
	t.Helper()
	m, err := stages.NewModel(c)
	if err != nil {
		t.Fatal(err)
	}
	var tensors []safetensors.Tensor
	for _, p := range m.Params {
		values := make([]float32, p.Len())
		if err := stages.InitWeights(1)(p, "", values); err != nil {
			t.Fatal(err)
		}
		tensors = append(tensors, safetensors.F32(p.Name, p.Shape, values))
	}
	return tensors
}

// Directory writes a Hugging Face model folder with a tokenizer for bytes. members replace members of config.json.
func Directory(t *testing.T, c stages.Config, tensors []safetensors.Tensor, members map[string]string) string {
	t.Helper()
	text, err := c.HF()
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]json.RawMessage)
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	for key, value := range members {
		all[key] = json.RawMessage(value)
	}
	if text, err = json.Marshal(all); err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Marshal(tokenizer.Bytes{})
	if err != nil {
		t.Fatal(err)
	}
	var file strings.Builder
	if err := safetensors.Write(&file, nil, tensors); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "model")
	Write(t, filepath.Join(dir, "config.json"), string(text))
	Write(t, filepath.Join(dir, "tokenizer.json"), string(tok))
	Write(t, filepath.Join(dir, "model.safetensors"), file.String())
	return dir
}

// FromConfig returns a run of one step that starts from a model folder.
func FromConfig(t *testing.T, from string, sets ...string) *config.Config {
	t.Helper()
	text := "run = {steps = 1}\ndata = {train = ['testdata/troupe.txt']}\nbatch = {sequences = 2, microbatch = 1}\n"
	cfg, err := config.Parse("from.toml", []byte(text), append([]string{"model.from=" + from, "run.out=" + filepath.Join(t.TempDir(), "out")},
		sets...), nil)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}
