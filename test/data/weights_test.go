package data

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/safetensors"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
	"github.com/troupe-ml/troupe/stages"
)

// ways are all that reads a directory of someone else's.
var ways = map[string]func(t *testing.T, from string) error{
	"eval": func(t *testing.T, from string) error {
		_, err := troupe.Evaluate(context.Background(), troupe.EvalOptions{ModelOptions: troupe.ModelOptions{From: from},
			Data: []string{"testdata/troupe.txt"}, Format: "text"})
		return err
	},
	"generate": func(t *testing.T, from string) error {
		o := troupe.GenerateOptions{ModelOptions: troupe.ModelOptions{From: from}, TextOptions: troupe.TextOptions{Prompt: "actor", Tokens: 2}}
		return troupe.Generate(context.Background(), o, func([]byte) error { return nil })
	},
	"check": func(t *testing.T, from string) error { return troupe.Check(testrun.FromConfig(t, from)) },
	"train": func(t *testing.T, from string) error {
		run, err := troupe.Start(context.Background(), testrun.FromConfig(t, from), troupe.Options{})
		if err != nil {
			return err
		}
		testrun.Drain(run)
		_, err = run.Wait()
		return err
	},
}

// TestEachTensorIsUsed: a tensor of the files is a weight of the model, a buffer that
// published files are known to have, or refused by name.
func TestEachTensorIsUsed(t *testing.T) {
	f32 := func(name string, shape ...int) safetensors.Tensor {
		n := 1
		for _, s := range shape {
			n *= s
		}
		return safetensors.F32(name, shape, make([]float32, n))
	}
	short := func(tensors []safetensors.Tensor) []safetensors.Tensor {
		for i := range tensors {
			tensors[i].Name = testrun.WithoutPrefix(tensors[i].Name)
		}
		return tensors
	}
	with := func(more ...safetensors.Tensor) func([]safetensors.Tensor) []safetensors.Tensor {
		return func(tensors []safetensors.Tensor) []safetensors.Tensor { return append(tensors, more...) }
	}
	headCopy := func(tensors []safetensors.Tensor) []safetensors.Tensor {
		wte := tensors[0]
		wte.Name = "lm_head.weight"
		return append(tensors, wte)
	}
	for _, tt := range []struct {
		name, family string
		members      map[string]string
		change       func([]safetensors.Tensor) []safetensors.Tensor
		want         []string // none: it is read
	}{
		{"fewer layers than the file", "llama", map[string]string{"num_hidden_layers": "1"}, with(),
			[]string{`9 of the 21 tensors`, `"model.layers.1.input_layernorm.weight"`, "…", "config.json"}},
		{"fewer layers of GPT-2", "gpt2", map[string]string{"n_layer": "1"}, with(),
			[]string{`12 of the 28 tensors`, `"transformer.h.1.ln_1.weight"`}},
		{"a bias", "llama", nil, with(f32("model.layers.0.self_attn.q_proj.bias", 8)),
			[]string{`1 of the 22 tensors`, `"model.layers.0.self_attn.q_proj.bias"`}},
		{"a name that could upset a terminal", "llama", nil, with(f32("\x1b[2J", 8)), []string{`"\x1b[2J"`}},
		{"the causal mask", "gpt2", nil, with(f32("transformer.h.1.attn.bias", 1, 1, 16, 16), f32("transformer.h.0.attn.masked_bias")), nil},
		{"the causal mask, without the prefix", "gpt2", nil, func(s []safetensors.Tensor) []safetensors.Tensor {
			return append(short(s), f32("h.0.attn.bias", 1, 1, 16, 16))
		}, nil},
		{"a mask of no layer", "gpt2", nil, with(f32("h.2.attn.bias", 1, 1, 16, 16)), []string{`"h.2.attn.bias"`}},
		{"rotary frequencies", "llama", nil, with(f32("model.layers.1.self_attn.rotary_emb.inv_freq", 2)), nil},
		{"rotary frequencies of GPT-2", "gpt2", nil, with(f32("model.rotary_emb.inv_freq", 2)), []string{`"model.rotary_emb.inv_freq"`}},
		{"a copy of the tied head", "gpt2", nil, headCopy, nil},
		{"another head than the tied one", "gpt2", nil, with(f32("lm_head.weight", 256, 8)),
			[]string{`"lm_head.weight"`, `"transformer.wte.weight"`, "tie_word_embeddings"}},
		{"another head, without the prefix", "gpt2", nil, func(s []safetensors.Tensor) []safetensors.Tensor {
			return append(short(s), f32("lm_head.weight", 256, 8))
		}, []string{`"lm_head.weight"`, `"wte.weight"`}},
		{"a tied head of another type", "gpt2", nil, with(safetensors.Tensor{Name: "lm_head.weight", DType: "F16", Shape: []int{256, 8},
			Data: make([]byte, 2*256*8)}), []string{`"lm_head.weight"`}},
		{"no head of its own", "gpt2", map[string]string{"tie_word_embeddings": "false"}, with(), []string{`tensor "lm_head.weight" is missing`}},
		{"two spellings", "gpt2", nil, with(f32("wpe.weight", 16, 8)), []string{`"transformer.wpe.weight"`, `"wpe.weight"`, "two names"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := testrun.TinyModels[tt.family]
			dir := testrun.Directory(t, c, tt.change(testrun.TensorsOf(t, c)), tt.members)
			for way, read := range ways {
				err := read(t, dir)
				if tt.want == nil && err != nil {
					t.Errorf("%s: %v", way, err)
				}
				for _, want := range tt.want {
					if err == nil || !strings.Contains(err.Error(), want) {
						t.Errorf("%s: error %v, want %q in it", way, err, want)
					}
				}
			}
		})
	}
}

// TestHostileConfigJSON: a small file with large numbers is refused by name, with the
// numbers, by all that reads one.
func TestHostileConfigJSON(t *testing.T) {
	for _, tt := range []struct{ family, key, value, want string }{
		{"gpt2", "n_layer", "2000000000", "n_layer is 2000000000"},
		{"gpt2", "n_layer", "4096", `h.2.ln_1.weight" is missing`},
		{"gpt2", "n_embd", "9223372036854775807", "n_embd is 9223372036854775807"},
		{"gpt2", "n_embd", "1048576", "the model needs [256 1048576]"},
		{"gpt2", "n_inner", "4194304", "the model needs [8 4194304]"},
		{"gpt2", "n_inner", "4194305", "n_inner is 4194305"},
		{"gpt2", "n_positions", "1024", "the model needs [1024 8]"},
		{"gpt2", "n_positions", "4000000000", "n_positions is 4000000000"},
		{"gpt2", "vocab_size", "16777216", "the model needs [16777216 8]"},
		{"gpt2", "vocab_size", "-1", "vocab_size is -1"},
		{"gpt2", "n_head", "0", "n_head is 0"},
		{"gpt2", "num_nextn_predict_layers", "1000000", "num_nextn_predict_layers is 1000000"},
		{"gpt2", "num_nextn_predict_layers", "15", `h.2.enorm.weight" is missing`},
		{"llama", "num_hidden_layers", "2000000000", "num_hidden_layers is 2000000000"},
		{"llama", "hidden_size", "1e9", "hidden_size is 1e9"},
		{"llama", "intermediate_size", "4194304", "the model needs [4194304 8]"},
		{"llama", "num_attention_heads", "1000000000", "num_attention_heads is 1000000000"},
		{"llama", "num_key_value_heads", "2", "the model needs [8 8]"},
		{"llama", "max_position_embeddings", "2147483648", "max_position_embeddings is 2147483648"},
		{"llama", "rope_theta", "1e300", "rope_theta is 1e300"},
		{"llama", "rms_norm_eps", "-1", "rms_norm_eps is -1"},
	} {
		t.Run(tt.key+"="+tt.value, func(t *testing.T) {
			c := testrun.TinyModels[tt.family]
			dir := testrun.Directory(t, c, testrun.TensorsOf(t, c), map[string]string{tt.key: tt.value, "head_dim": "null"})
			for way, read := range ways {
				err := read(t, dir)
				if setup := new(troupe.SetupError); !errors.As(err, &setup) || !strings.Contains(err.Error(), tt.want) &&
					!strings.Contains(err.Error(), strings.Replace(tt.want, `"h.`, `"transformer.h.`, 1)) {
					t.Errorf("%s: error %v, want %q in it", way, err, tt.want)
				}
			}
		})
	}
}

// TestLongContext: a context that no weight backs costs memory for what is used of it,
// and where that is too much, an error with numbers.
func TestLongContext(t *testing.T) {
	c := testrun.TinyModels["llama"]
	dir := testrun.Directory(t, c, testrun.TensorsOf(t, c), map[string]string{"max_position_embeddings": fmt.Sprint(stages.MaxContext)})
	zeros := testrun.Write(t, filepath.Join(t.TempDir(), "zeros.bin"), strings.Repeat("\x00\x00", stages.MaxContext+1))
	testrun.SetFreeMemory(t, 32<<20)
	generate := func(tokens int) error {
		o := troupe.GenerateOptions{ModelOptions: troupe.ModelOptions{From: dir},
			TextOptions: troupe.TextOptions{Prompt: "actor", Tokens: tokens}}
		return troupe.Generate(context.Background(), o, func([]byte) error { return nil })
	}
	evaluate := func(data, format string) error {
		_, err := troupe.Evaluate(context.Background(), troupe.EvalOptions{ModelOptions: troupe.ModelOptions{From: dir}, Data: []string{data},
			Format: format})
		return err
	}
	for _, tt := range []struct {
		name string
		err  error
		want string // "": it works
	}{
		{"a few tokens", generate(3), ""},
		{"tokens without end", generate(1 << 62),
			"for 1048576 positions need 0.1 GiB, but the device has 0.0 GiB free"},
		{"a short text", evaluate("testdata/troupe.txt", "text"), ""},
		{"a text of a whole context", evaluate(zeros, "uint16"), "windows of 1048576 tokens, 1 at a time, need"},
	} {
		if tt.want == "" && tt.err != nil {
			t.Errorf("%s: %v", tt.name, tt.err)
		}
		if setup := new(troupe.SetupError); tt.want != "" && (!errors.Is(tt.err, troupe.ErrMemory) || !errors.As(tt.err, &setup) ||
			!strings.Contains(tt.err.Error(), tt.want)) {
			t.Errorf("%s: error %v, want %q in it", tt.name, tt.err, tt.want)
		}
	}
}

// TestLimitsAgree: what a configuration may say of a model and what a config.json may
// are the same, though neither package knows the other.
func TestLimitsAgree(t *testing.T) {
	for name, pair := range map[string][2]float64{
		"layers":     {config.MaxLayers, stages.MaxLayers},
		"hidden":     {config.MaxHidden, stages.MaxHidden},
		"heads":      {config.MaxHeads, stages.MaxHeads},
		"ffn":        {config.MaxFFN, stages.MaxFFN},
		"context":    {config.MaxContext, stages.MaxContext},
		"vocab":      {config.MaxVocab, stages.MaxVocab},
		"mtp_layers": {config.MaxMTPLayers, stages.MaxMTPLayers},
		"rope_theta": {config.MaxRopeTheta, stages.MaxRopeTheta},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: a configuration may have %g, a config.json %g", name, pair[0], pair[1])
		}
	}
}
