package ggufmodel_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/troupe-ml/troupe/internal/gguf"
	"github.com/troupe-ml/troupe/internal/ggufmodel"
	"github.com/troupe-ml/troupe/internal/tokenizer"
	"github.com/troupe-ml/troupe/stages"
)

// usual are models of families whose models in stages have switches that llama.cpp does not have.
var usual = []string{
	`{"model_type": "llama", "vocab_size": 256, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1,
		"num_attention_heads": 2,
		"max_position_embeddings": 64, "rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
		"original_max_position_embeddings": 16}}`,
	`{"model_type": "qwen3", "vocab_size": 256, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1,
		"num_attention_heads": 2,
		"num_key_value_heads": 1, "head_dim": 8, "max_position_embeddings": 64, "rope_scaling": {"rope_type": "yarn", "factor": 4,
		"original_max_position_embeddings": 16}}`,
	`{"model_type": "qwen3_5_text", "vocab_size": 256, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4,
		"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
		"max_position_embeddings": 64, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
		"linear_num_key_heads": 2, "linear_num_value_heads": 4, "rope_parameters": {"rope_type": "default", "rope_theta": 10000,
		"partial_rotary_factor": 0.5}}`,
	`{"model_type": "gemma4_text", "vocab_size": 256, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4,
		"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "global_head_dim": 16, "num_global_key_value_heads": 1,
		"attention_k_eq_v": true,
		"sliding_window": 16, "max_position_embeddings": 64, "hidden_size_per_layer_input": 0, "final_logit_softcapping": 30,
		"layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"], "pad_token_id": null}`,
	`{"model_type": "smollm3", "vocab_size": 256, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 8,
		"num_attention_heads": 4,
		"num_key_value_heads": 2, "max_position_embeddings": 64, "pad_token_id": null}`,
	`{"model_type": "gemma2", "vocab_size": 256, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4,
		"num_attention_heads": 4,
		"num_key_value_heads": 2, "head_dim": 12, "query_pre_attn_scalar": 12, "sliding_window": 16, "max_position_embeddings": 64,
		"pad_token_id": null}`,
	`{"model_type": "gemma3_text", "vocab_size": 256, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 7,
		"num_attention_heads": 4,
		"num_key_value_heads": 2, "head_dim": 12, "query_pre_attn_scalar": 12, "sliding_window": 16, "max_position_embeddings": 64,
		"pad_token_id": null}`,
}

// TestFamilies: the sizes and switches of every family come back from a GGUF file, or the file is refused because
// llama.cpp has no place for
// one of them. The models are those of TestFamiliesAgree in stages.
func TestFamilies(t *testing.T) {
	f, err := os.Open(filepath.Join("..", "..", "stages", "testdata", "families", "vectors.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	came := make(map[string]int)
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 64<<20)
	type named struct {
		Name   string
		Config json.RawMessage
	}
	var all []named
	for lines.Scan() {
		var v named
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		all = append(all, v)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	for _, config := range usual {
		all = append(all, named{config[:30], json.RawMessage(config)})
	}
	for _, v := range all {
		want, err := stages.ParseHF(v.Config)
		if err != nil {
			t.Fatalf("%s: %v", v.Name, err)
		}
		got, warnings, err := throughGGUF(t, want)
		if errors.Is(err, ggufmodel.ErrUnsupported) {
			t.Logf("%s: %v", v.Name, err)
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", v.Name, err)
			continue
		}
		came[want.Family]++
		if want.Family == stages.Mistral { // llama.cpp's llama has both
			want.Family = stages.Llama
		}
		if len(warnings) > 0 {
			t.Logf("%s: %q", v.Name, warnings)
			want.Window, want.Full = got.Window, got.Full
		}
		want.Dropout = 0 // no property of the weights
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: read as\n%+v, written\n%+v", v.Name, got, want)
		}
	}
	for _, family := range stages.LanguageFamilies() {
		if came[family] == 0 && !stages.HasExperts(family) {
			t.Errorf("no model of %s can be written; see ARCHITECTURE.md", family)
		}
	}
}

// throughGGUF writes a model of some sizes, with zeros as weights, and reads its sizes.
func throughGGUF(t *testing.T, c stages.Config) (got stages.Config, warnings []string, err error) {
	model, err := stages.NewModel(c)
	if err != nil {
		return got, nil, err
	}
	m := ggufmodel.Model{}
	if c.Vocab >= (tokenizer.Bytes{}).Vocab() {
		m.Text.Tokenizer = tokenizer.Bytes{}
	}
	if m.Config, err = c.HF(); err != nil {
		return got, nil, err
	}
	for _, p := range model.Params {
		if !p.FirstStored() {
			continue
		}
		for _, part := range p.StoredParts() {
			shape, n := part.Shape, 4
			for _, d := range shape {
				n *= d
			}
			m.Tensors = append(m.Tensors, ggufmodel.Tensor{Name: part.Name, DType: "F32", Shape: shape,
				Data: func() ([]byte, error) { return make([]byte, n), nil }})
		}
	}
	p, warnings, err := ggufmodel.Write(m)
	if err != nil {
		return got, nil, err
	}
	if m.Text.Tokenizer == nil { // the last warning is about the missing tokenizer
		warnings = warnings[:len(warnings)-1]
	}
	var b bytes.Buffer
	if _, err := p.WriteTo(&b); err != nil {
		return got, nil, err
	}
	if _, err := gguf.Parse(bytes.NewReader(b.Bytes()), int64(b.Len())); err != nil {
		return got, nil, err
	}
	path := filepath.Join(t.TempDir(), "x.gguf")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		return got, nil, err
	}
	ckpt, err := ggufmodel.Open(path)
	if err != nil {
		return got, nil, err
	}
	defer func() { err = errors.Join(err, ckpt.Close()) }()
	text, err := ckpt.File("config.json")
	if err != nil {
		return got, nil, err
	}
	for _, p := range model.Params {
		if _, ok := ckpt.Model().Info(p.StoredName()); !ok {
			t.Errorf("tensor %s is missing", p.StoredName())
		}
	}
	got, err = stages.ParseHF(text)
	return got, warnings, err
}
