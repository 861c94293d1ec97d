package ggufmodel_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/internal/base/rng"
	"github.com/troupe-ml/troupe/internal/gguf"
	"github.com/troupe-ml/troupe/internal/ggufmodel"
	"github.com/troupe-ml/troupe/internal/safetensors"
	"github.com/troupe-ml/troupe/internal/tokenizer"
	"github.com/troupe-ml/troupe/internal/tokenizer/hf"
)

// tensorOf returns a tensor of reproducible numbers.
func tensorOf(name string, shape ...int) ggufmodel.Tensor {
	n := 1
	for _, d := range shape {
		n *= d
	}
	values := make([]float32, n)
	rng.Normal(values, rng.NewKey(1, rng.StringStream(name)), 0, 0, 1)
	return ggufmodel.Tensor{Name: name, DType: "F32", Shape: shape, Data: func() ([]byte, error) {
		return safetensors.EncodeFloat32(values),
			nil
	}}
}

// llamaTensors are those of one layer with 32 channels, 4 heads and 2 groups.
func llamaTensors(tied bool) []ggufmodel.Tensor {
	const at = "model.layers.0."
	all := []ggufmodel.Tensor{
		tensorOf("model.embed_tokens.weight", 261, 32), tensorOf(at+"input_layernorm.weight", 32), tensorOf(at+"self_attn.q_proj.weight", 32, 32),
		tensorOf(at+"self_attn.k_proj.weight", 16, 32), tensorOf(at+"self_attn.v_proj.weight", 16, 32),
		tensorOf(at+"self_attn.o_proj.weight", 32, 32),
		tensorOf(at+"post_attention_layernorm.weight", 32), tensorOf(at+"mlp.gate_proj.weight", 64, 32),
		tensorOf(at+"mlp.up_proj.weight", 64, 32),
		tensorOf(at+"mlp.down_proj.weight", 32, 64), tensorOf("model.norm.weight", 32),
	}
	if !tied {
		all = append(all, tensorOf("lm_head.weight", 261, 32))
	}
	return all
}

const llamaConfig = `{"model_type": "llama", "vocab_size": 261, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1,
	"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-05, "rope_theta": 10000%s}`

// bpe is the tokenizer.json of a byte-level tokenizer: all bytes, "th" and two special tokens.
func bpe(t testing.TB, pre string, more string) tokenizer.Tokenizer {
	t.Helper()
	file, err := tokenizer.Marshal(tokenizer.Bytes{})
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]any
	if err := json.Unmarshal(file, &all); err != nil {
		t.Fatal(err)
	}
	model := all["model"].(map[string]any)
	vocab := model["vocab"].(map[string]any)
	vocab["th"], vocab["<s>"], vocab["<|im_end|>"] = 256, 257, 258
	model["merges"] = [][]string{{"t", "h"}}
	all["added_tokens"] = []map[string]any{
		{"id": 257, "content": "<s>", "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false},
		{"id": 258, "content": "<|im_end|>", "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false},
	}
	for key, text := range map[string]string{"pre_tokenizer": pre, "post_processor": more} {
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		all[key] = v
	}
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Unmarshal(text)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func split(pattern string) string {
	quoted, _ := json.Marshal(pattern)
	return fmt.Sprintf(`{"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": %s}, "behavior": "Isolated",
		"invert": false},
		{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]}`, quoted)
}

const startPost = `{"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A",
	"type_id": 0}}],
	"pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [257], "tokens": ["<s>"]}}}`

// written writes a model to a file.
func written(t testing.TB, m ggufmodel.Model) (path string, warnings []string) {
	t.Helper()
	p, warnings, err := ggufmodel.Write(m)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := p.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "m.gguf")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, warnings
}

// TestLlama: a model comes back whole: its sizes, its scaling, its tensors, its tokenizer and its template.
func TestLlama(t *testing.T) {
	tok := bpe(t, split(hf.PatternLlama), startPost)
	model := ggufmodel.Model{Name: "x", Tensors: llamaTensors(true), Text: ggufmodel.Text{Tokenizer: tok,
		Special: map[string]int32{"bos": 257}, Ends: []int32{258, 104}, Before: []int32{257}, Template: "{{ messages }}"},
		Config: fmt.Appendf(nil, llamaConfig, `, "tie_word_embeddings": true, "rope_scaling": {"rope_type": "llama3", "factor": 8,
			"low_freq_factor": 1,
			"high_freq_factor": 4, "original_max_position_embeddings": 16}`)}
	path, warnings := written(t, model)
	if warnings != nil {
		t.Errorf("warnings %q", warnings)
	}
	c, err := ggufmodel.OpenAt(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	for _, want := range model.Tensors {
		data, err := want.Data()
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.Model().Bytes(want.Name)
		info, _ := c.Model().Info(want.Name)
		if err != nil || !bytes.Equal(got, data) || !slices.Equal(info.Shape, want.Shape) || info.DType != "F32" {
			t.Errorf("%s: %v %v, %v", want.Name, info, err, bytes.Equal(got, data))
		}
	}
	text, err := c.File("config.json")
	if err != nil {
		t.Fatal(err)
	}
	var a, b map[string]any
	if err := json.Unmarshal(text, &a); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(model.Config, &b); err != nil {
		t.Fatal(err)
	}
	for key, want := range b {
		if !reflect.DeepEqual(a[key], want) {
			t.Errorf("%s is %v, want %v", key, a[key], want)
		}
	}
	if text, err = c.File("tokenizer.json"); err != nil {
		t.Fatal(err)
	}
	back, err := tokenizer.Unmarshal(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, words := range []string{"the thing, 12345!", "<s>th<|im_end|> ü"} {
		want, _ := tok.EncodeSpecial([]byte(words), true)
		got, err := back.EncodeSpecial([]byte(words), true)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q is %d, want %d: %v", words, got, want, err)
		}
	}
	for name, want := range map[string]string{"chat_template.jinja": "{{ messages }}", "generation_config.json": `{"eos_token_id":[258,104]}` +
		"\n",
		"tokenizer_config.json": `"bos_token":"<s>"`} {
		if text, err := c.File(name); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s is %s, %v", name, text, err)
		}
	}
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for key, want := range map[string]any{"tokenizer.ggml.pre": "dbrx", "tokenizer.ggml.eot_token_id": uint32(104),
		"general.size_label":           "18K",
		"tokenizer.ggml.add_bos_token": true, "llama.rope.dimension_count": uint32(8)} {
		if got, _ := f.Value(key); got != want {
			t.Errorf("%s is %v, want %v", key, got, want)
		}
	}
}

// TestEndNames: ends that a file leaves out because llama.cpp knows their names come back.
func TestEndNames(t *testing.T) {
	path, _ := written(t, ggufmodel.Model{Name: "x", Tensors: llamaTensors(true),
		Config: fmt.Appendf(nil, llamaConfig, `, "tie_word_embeddings": true`),
		Text:   ggufmodel.Text{Tokenizer: bpe(t, split(hf.PatternLlama), startPost), Ends: []int32{104, 258}, Before: []int32{257}}})
	c, err := ggufmodel.OpenAt(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if text, err := c.File("generation_config.json"); err != nil || string(text) != `{"eos_token_id":[104,258]}`+"\n" {
		t.Errorf("%s, %v", text, err)
	}
}

// TestWriteRefused: what llama.cpp has no place for is refused by name, or a warning says it.
func TestWriteRefused(t *testing.T) {
	const only = `{"model_type": %q, "vocab_size": 261, "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4%s}`
	tok := tokenizer.Bytes{}
	for _, c := range []struct {
		config string
		text   ggufmodel.Text
		says   string
	}{
		{fmt.Sprintf(only, "bloom", ""), ggufmodel.Text{Tokenizer: tok}, `models of family "bloom" cannot be written as GGUF`},
		{fmt.Sprintf(only, "llama", `, "num_nextn_predict_layers": 1`), ggufmodel.Text{Tokenizer: tok}, "num_nextn_predict_layers is"},
		{fmt.Sprintf(only, "llama", `, "partial_rotary_factor": 0.5`), ggufmodel.Text{Tokenizer: tok}, "partial_rotary_factor is 0.5"},
		{fmt.Sprintf(only, "llama", `, "hidden_act": "relu"`), ggufmodel.Text{Tokenizer: tok}, `hidden_act is "relu"`},
		{fmt.Sprintf(only, "qwen2", `, "rope_scaling": {"rope_type": "dynamic", "factor": 2}`), ggufmodel.Text{Tokenizer: tok},
			`rope_type "dynamic"`},
		{fmt.Sprintf(only, "qwen2", `, "rope_scaling": {"rope_type": "yarn", "factor": 4, "attention_factor": 3}`),
			ggufmodel.Text{Tokenizer: tok},
			"attention_factor is 3"},
		{fmt.Sprintf(only, "smollm3", `, "no_rope_layers": [1, 1, 1, 1]`), ggufmodel.Text{Tokenizer: tok}, "layer 3 differs"},
		{fmt.Sprintf(only, "granite", `, "head_dim": 16`), ggufmodel.Text{Tokenizer: tok}, "head_dim is 16"},
		{fmt.Sprintf(only, "gemma2", `, "tie_word_embeddings": true, "query_pre_attn_scalar": 100`), ggufmodel.Text{Tokenizer: tok},
			"query_pre_attn_scalar is 100"},
		{fmt.Sprintf(only, "gemma2", `, "tie_word_embeddings": true, "query_pre_attn_scalar": 8, "attn_logit_softcapping": null`),
			ggufmodel.Text{Tokenizer: tok}, "attn_logit_softcapping is null"},
		{fmt.Sprintf(only, "llama", ``), ggufmodel.Text{Tokenizer: bpe(t, split(`\w+`), `null`)}, "no pre-tokenizer that splits texts"},
		{`{"model_type": "llama", "model_type": 1}`, ggufmodel.Text{}, "model_type"},
		{`{"model_type": "llama", "hidden_size": "x"}`, ggufmodel.Text{}, "hidden_size is"},
	} {
		_, _, err := ggufmodel.Write(ggufmodel.Model{Config: []byte(c.config), Text: c.text})
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: error %v, want %q", c.config, err, c.says)
		}
	}
	_, warnings, err := ggufmodel.Write(ggufmodel.Model{Text: ggufmodel.Text{Tokenizer: tok},
		Config: fmt.Appendf(nil, only, "mistral", `, "sliding_window": 16, "max_position_embeddings": 64`)})
	if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], "more than 16 tokens") {
		t.Errorf("%q, %v", warnings, err)
	}
	chars, err := tokenizer.BuildChars([]byte("ab"))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := ggufmodel.Write(ggufmodel.Model{Text: ggufmodel.Text{Tokenizer: chars},
		Config: fmt.Appendf(nil, only, "llama", "")}); err == nil ||
		!strings.Contains(err.Error(), "WordLevel cannot be written as GGUF") {
		t.Errorf("chars: %v", err)
	}
}

// TestPhi3Name: llama.cpp looks for Phi-3's tokens if the name of a model says so.
func TestPhi3Name(t *testing.T) {
	for name, want := range map[string]any{"my-Phi3": nil, "phi-4": "phi-4"} {
		path, _ := written(t, ggufmodel.Model{Name: name, Text: ggufmodel.Text{Tokenizer: tokenizer.Bytes{}}, Tensors: llamaTensors(true),
			Config: fmt.Appendf(nil, llamaConfig, `, "tie_word_embeddings": true`)})
		f, err := gguf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := f.Value("general.name"); got != want {
			t.Errorf("the name %q is written as %v", name, got)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

// entriesOf are those of a small llama file, with some changed or, if nil, removed.
func entriesOf(changes map[string]any) (entries []gguf.Entry) {
	for _, e := range []gguf.Entry{
		{Key: "general.architecture", Value: "llama"}, {Key: "llama.block_count", Value: uint32(0)},
		{Key: "llama.context_length", Value: uint32(8)},
		{Key: "llama.embedding_length", Value: uint32(4)}, {Key: "llama.feed_forward_length", Value: uint32(4)},
		{Key: "llama.attention.head_count", Value: uint32(2)}, {Key: "llama.attention.layer_norm_rms_epsilon", Value: float32(1e-5)},
		{Key: "tokenizer.ggml.model", Value: "llama"}, {Key: "tokenizer.ggml.tokens", Value: []string{"<unk>", "▁", "a", "▁a"}},
		{Key: "tokenizer.ggml.scores", Value: []float32{0, -1, -2, -3}}, {Key: "tokenizer.ggml.token_type", Value: []int32{2, 1, 1, 1}},
	} {
		if v, ok := changes[e.Key]; ok {
			e.Value = v
			delete(changes, e.Key)
		}
		if e.Value != nil {
			entries = append(entries, e)
		}
	}
	for key, v := range changes {
		entries = append(entries, gguf.Entry{Key: key, Value: v})
	}
	return entries
}

func save(t testing.TB, entries []gguf.Entry, tensors ...ggufmodel.Tensor) string {
	t.Helper()
	var all []gguf.Tensor
	for _, one := range tensors {
		all = append(all, gguf.Converted(one.Name, gguf.F32, one.Shape, "F32", one.Data))
	}
	p, err := gguf.Prepare(entries, all)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := p.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "x.gguf")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestOpenRefused: a wrong key is refused with its name and the file.
func TestOpenRefused(t *testing.T) {
	embedding := tensorOf("token_embd.weight", 5, 4)
	path := save(t, entriesOf(nil), embedding, tensorOf("output_norm.weight", 4))
	c, err := ggufmodel.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		changes map[string]any
		says    string
	}{
		{map[string]any{"general.architecture": "rwkv"}, `general.architecture is "rwkv"`},
		{map[string]any{"general.architecture": uint32(1)}, "general.architecture is missing or no string"},
		{map[string]any{"llama.block_count": nil}, "llama.block_count is missing"},
		{map[string]any{"llama.block_count": uint64(1 << 40)}, "llama.block_count is 1099511627776"},
		{map[string]any{"llama.block_count": int32(-1)}, "llama.block_count is -1"},
		{map[string]any{"llama.block_count": "many"}, `llama.block_count is "many"`},
		{map[string]any{"llama.attention.head_count": []int32{2, 3}}, "llama.attention.head_count is [2 3]"},
		{map[string]any{"llama.rope.freq_base": float32(math.NaN())}, "llama.rope.freq_base is NaN"},
		{map[string]any{"llama.rope.scaling.type": "dynamic"}, `llama.rope.scaling.type is "dynamic"`},
		{map[string]any{"llama.rope.dimension_count": uint32(64)}, "llama.rope.dimension_count is 64 of the 2 channels"},
		{map[string]any{"llama.attention.key_length": uint32(1e8)}, "llama.attention.key_length is 100000000"},
		{map[string]any{"llama.expert_count": uint32(8)}, "llama.expert_count is 8"},
		{map[string]any{"split.count": uint16(3)}, "split.count is 3 (uint16): the file is one of several"},
		{map[string]any{"general.type": "adapter"}, `general.type is "adapter"`},
		{map[string]any{"llama.vocab_size": uint32(7)}, "llama.vocab_size is 7"},
		{map[string]any{"tokenizer.ggml.model": "bert"}, `tokenizer.ggml.model is "bert"`},
		{map[string]any{"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "new"}, `tokenizer.ggml.pre is "new"`},
		{map[string]any{"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2"}, "tokenizer.ggml.merges is missing"},
		{map[string]any{"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.merges": []string{"ab"}},
			`merge 0 is "ab"`},
		{map[string]any{"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.merges": []string{""}}, `merge 0 is ""`},
		{map[string]any{"tokenizer.ggml.tokens": []string{"a", "b", "c", "d", "e", "f"}}, "tokenizer.ggml.tokens is a list of 6"},
		{map[string]any{"tokenizer.ggml.tokens": []string{"a", "a", "c", "d"}}, `the token "a" twice`},
		{map[string]any{"tokenizer.ggml.tokens": []uint8{1}}, "tokenizer.ggml.tokens is a []uint8"},
		{map[string]any{"tokenizer.ggml.token_type": []int32{1}}, "tokenizer.ggml.token_type is a list of 1"},
		{map[string]any{"tokenizer.ggml.scores": []float32{1}}, "tokenizer.ggml.scores is a list of 1"},
		{map[string]any{"tokenizer.ggml.scores": []float32{0, 0, 0, float32(math.NaN())}}, "the score of token 3 is not a number"},
		{map[string]any{"tokenizer.ggml.tokens": []string{"a", "b", "c", strings.Repeat("x", 40000)}}, "token 3 has 40000 bytes"},
	} {
		says := c.says
		path := save(t, entriesOf(c.changes), embedding)
		if _, err := ggufmodel.Open(path); err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), path) {
			t.Errorf("error %v, want %q with the path", err, says)
		}
	}
	for _, c := range []struct {
		tensors []ggufmodel.Tensor
		says    string
	}{
		{nil, `tensor "token_embd.weight" is missing`},
		{[]ggufmodel.Tensor{embedding, tensorOf("blk.0.ssm_a", 4)}, `tensor "blk.0.ssm_a"`},
		{[]ggufmodel.Tensor{embedding, tensorOf("blk.00.attn_q.weight", 4, 4)}, `tensor "blk.00.attn_q.weight"`},
		{[]ggufmodel.Tensor{embedding, tensorOf("rope_freqs.weight", 3)}, `tensor "rope_freqs.weight"`},
		{[]ggufmodel.Tensor{embedding, tensorOf("rope_freqs.weight", 2)}, `tensor "rope_freqs.weight"`},
	} {
		if _, err := ggufmodel.Open(save(t, entriesOf(nil), c.tensors...)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("error %v, want %q", err, c.says)
		}
	}
}

// FuzzModel: no file panics, and what is opened has tensors of the sizes that it says.
func FuzzModel(f *testing.F) {
	for _, changes := range []map[string]any{nil, {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "qwen2",
		"tokenizer.ggml.merges": []string{"a b"}},
		{"general.architecture": "gemma3", "gemma3.attention.sliding_window_pattern": []bool{true}}} {
		data, err := os.ReadFile(save(f, entriesOf(changes), tensorOf("token_embd.weight", 5, 4), tensorOf("blk.0.attn_q.weight", 4, 4)))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "x.gguf")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := ggufmodel.Open(path)
		if err != nil {
			return
		}
		defer func() { _ = c.Close() }()
		for _, name := range c.Model().Names() {
			info, _ := c.Model().Info(name)
			b, err := c.Model().Bytes(name)
			if err == nil && int64(len(b)) != info.Size {
				t.Errorf("%s has %d bytes, not %d", name, len(b), info.Size)
			}
		}
		for _, name := range []string{"config.json", "tokenizer.json", "tokenizer_config.json"} {
			if text, err := c.File(name); err == nil && !json.Valid(text) {
				t.Errorf("%s is no JSON: %s", name, text)
			}
		}
		if text, err := c.File("tokenizer.json"); err == nil {
			_, _ = tokenizer.Unmarshal(text)
		}
	})
}
