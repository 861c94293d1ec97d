package stages_test

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/stages"
)

func TestHFRoundTrip(t *testing.T) {
	for _, c := range append(families, gradientModels...) {
		b, err := c.HF()
		if err != nil {
			t.Fatal(err)
		}
		got, err := stages.ParseHF(b)
		if err != nil {
			t.Fatalf("%s\n%s", err, b)
		}
		c.NormEps, c.MTPWeight, c.Adapter = 1e-5, 0, nil // an adapter and the weight of a loss are no part of config.json
		c.Experts.Balance = stages.BalanceConfig{}       // nor is what only training does
		if !reflect.DeepEqual(got, c) {
			t.Errorf("%+v came back as %+v", c, got)
		}
	}
}

// edited sets members of a JSON object; an empty value removes one.
func edited(t *testing.T, object string, members ...string) string {
	t.Helper()
	all := make(map[string]json.RawMessage)
	if err := json.Unmarshal([]byte(object), &all); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(members); i += 2 {
		delete(all, members[i])
		if members[i+1] != "" {
			all[members[i]] = json.RawMessage(members[i+1])
		}
	}
	b, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

const (
	publishedGPT2 = `{"activation_function":"gelu_new","architectures":["GPT2LMHeadModel"],"attn_pdrop":0.1,"bos_token_id":50256,"embd_pdrop":0.1,"eos_token_id":50256,
		"initializer_range":0.02,"layer_norm_epsilon":1e-05,"model_type":"gpt2","n_ctx":1024,"n_embd":768,"n_head":12,"n_layer":12,"n_positions":1024,"n_special":0,
		"predict_special_tokens":true,"resid_pdrop":0.1,"summary_activation":null,"summary_first_dropout":0.1,"summary_proj_to_labels":true,"summary_type":"cls_index",
		"summary_use_proj":true,"task_specific_params":{"text-generation":{"do_sample":true,"max_length":50}},"vocab_size":50257}`
	publishedLlama = `{"architectures":["LlamaForCausalLM"],"bos_token_id":1,"eos_token_id":2,"hidden_act":"silu","hidden_size":2048,"initializer_range":0.02,"intermediate_size":5632,
		"max_position_embeddings":2048,"model_type":"llama","num_attention_heads":32,"num_hidden_layers":22,"num_key_value_heads":4,"pretraining_tp":1,"rms_norm_eps":1e-05,
		"rope_scaling":null,"tie_word_embeddings":false,"torch_dtype":"float32","transformers_version":"4.35.0","use_cache":true,"vocab_size":32000}`
	publishedMistral = `{"architectures":["MistralForCausalLM"],"bos_token_id":1,"eos_token_id":2,"hidden_act":"silu","hidden_size":4096,"initializer_range":0.02,"intermediate_size":14336,
		"max_position_embeddings":32768,"model_type":"mistral","num_attention_heads":32,"num_hidden_layers":32,"num_key_value_heads":8,"rms_norm_eps":1e-05,"rope_theta":10000.0,
		"sliding_window":4096,"tie_word_embeddings":false,"torch_dtype":"bfloat16","transformers_version":"4.34.0.dev0","use_cache":true,"vocab_size":32000}`
	publishedQwen2 = `{"architectures":["Qwen2ForCausalLM"],"attention_dropout":0.0,"bos_token_id":151643,"eos_token_id":151645,"hidden_act":"silu","hidden_size":896,
		"initializer_range":0.02,"intermediate_size":4864,"max_position_embeddings":32768,"max_window_layers":21,"model_type":"qwen2","num_attention_heads":14,
		"num_hidden_layers":24,"num_key_value_heads":2,"rms_norm_eps":1e-06,"rope_theta":1000000.0,"sliding_window":32768,"tie_word_embeddings":true,"torch_dtype":"bfloat16",
		"transformers_version":"4.43.1","use_cache":true,"use_sliding_window":false,"vocab_size":151936}`
	publishedQwen3 = `{"architectures":["Qwen3ForCausalLM"],"attention_bias":false,"attention_dropout":0.0,"bos_token_id":151643,"eos_token_id":151645,"head_dim":128,"hidden_act":"silu",
		"hidden_size":1024,"initializer_range":0.02,"intermediate_size":3072,"max_position_embeddings":40960,"max_window_layers":28,"model_type":"qwen3","num_attention_heads":16,
		"num_hidden_layers":28,"num_key_value_heads":8,"rms_norm_eps":1e-06,"rope_scaling":null,"rope_theta":1000000,"sliding_window":null,"tie_word_embeddings":true,
		"torch_dtype":"bfloat16","transformers_version":"4.51.0","use_cache":true,"use_sliding_window":false,"vocab_size":151936}`
	publishedLlama32 = `{"architectures":["LlamaForCausalLM"],"attention_bias":false,"attention_dropout":0.0,"bos_token_id":128000,"eos_token_id":[128001,128008,128009],"head_dim":64,
		"hidden_act":"silu","hidden_size":2048,"initializer_range":0.02,"intermediate_size":8192,"max_position_embeddings":131072,"mlp_bias":false,"model_type":"llama",
		"num_attention_heads":32,"num_hidden_layers":16,"num_key_value_heads":8,"pretraining_tp":1,"rms_norm_eps":1e-05,"rope_scaling":{"factor":32.0,"high_freq_factor":4.0,
		"low_freq_factor":1.0,"original_max_position_embeddings":8192,"rope_type":"llama3"},"rope_theta":500000.0,"tie_word_embeddings":true,"torch_dtype":"bfloat16",
		"transformers_version":"4.45.0.dev0","use_cache":true,"vocab_size":128256}`
	publishedSmolLM3 = `{"architectures":["SmolLM3ForCausalLM"],"attention_bias":false,"attention_dropout":0.0,"bos_token_id":null,"eos_token_id":128012,"hidden_act":"silu",
		"hidden_size":2048,"initializer_range":0.02,"intermediate_size":11008,"layer_types":null,"max_position_embeddings":65536,"max_window_layers":28,"mlp_bias":false,
		"model_type":"smollm3","no_rope_layer_interval":4,"no_rope_layers":[1,1,1,0,1,1,1,0,1,1,1,0,1,1,1,0,1,1,1,0,1,1,1,0,1,1,1,0,1,1,1,0,1,1,1,0],"num_attention_heads":16,
		"num_hidden_layers":36,"num_key_value_heads":4,"pad_token_id":128004,"pretraining_tp":2,"rms_norm_eps":1e-06,"rope_scaling":null,"rope_theta":5000000.0,"sliding_window":null,
		"torch_dtype":"bfloat16","transformers_version":"4.54.0.dev0","use_cache":false,"use_sliding_window":false,"vocab_size":128256}`
	publishedOLMo2 = `{"architectures":["Olmo2ForCausalLM"],"attention_bias":false,"attention_dropout":0.0,"eos_token_id":100257,"hidden_act":"silu","hidden_size":4096,
		"initializer_range":0.02,"intermediate_size":11008,"max_position_embeddings":4096,"model_type":"olmo2","num_attention_heads":32,"num_hidden_layers":32,
		"num_key_value_heads":32,"pad_token_id":100277,"rms_norm_eps":1e-06,"rope_scaling":null,"rope_theta":500000,"tie_word_embeddings":false,"torch_dtype":"float32",
		"transformers_version":"4.47.0.dev0","use_cache":false,"vocab_size":100352}`
	publishedPhi3 = `{"architectures":["Phi3ForCausalLM"],"attention_bias":false,"attention_dropout":0.0,"auto_map":{"AutoConfig":"configuration_phi3.Phi3Config"},"bos_token_id":1,
		"embd_pdrop":0.0,"eos_token_id":32000,"hidden_act":"silu","hidden_size":3072,"initializer_range":0.02,"intermediate_size":8192,"max_position_embeddings":4096,
		"model_type":"phi3","num_attention_heads":32,"num_hidden_layers":32,"num_key_value_heads":32,"original_max_position_embeddings":4096,"pad_token_id":32000,
		"resid_pdrop":0.0,"rms_norm_eps":1e-05,"rope_scaling":null,"rope_theta":10000.0,"sliding_window":2047,"tie_word_embeddings":false,"torch_dtype":"bfloat16",
		"transformers_version":"4.40.2","use_cache":true,"vocab_size":32064}`
	// All that transformers 5 says of a model whose author said nothing.
	defaultGPT2 = `{"transformers_version":"5.23.0","architectures":null,"output_hidden_states":false,"return_dict":true,"dtype":null,"chunk_size_feed_forward":0,"is_encoder_decoder":false,
		"id2label":{"0":"LABEL_0","1":"LABEL_1"},"label2id":{"LABEL_0":0,"LABEL_1":1},"problem_type":null,"vocab_size":50257,"n_positions":1024,"n_embd":768,"n_layer":12,"n_head":12,
		"n_inner":null,"activation_function":"gelu_new","resid_pdrop":0.1,"embd_pdrop":0.1,"attn_pdrop":0.1,"layer_norm_epsilon":1e-05,"initializer_range":0.02,"summary_type":"cls_index",
		"summary_use_proj":true,"summary_activation":null,"summary_proj_to_labels":true,"summary_first_dropout":0.1,"scale_attn_weights":true,"use_cache":true,"bos_token_id":50256,
		"eos_token_id":50256,"pad_token_id":null,"scale_attn_by_inverse_layer_idx":false,"reorder_and_upcast_attn":false,"add_cross_attention":false,"tie_word_embeddings":true,
		"_name_or_path":"","model_type":"gpt2","output_attentions":false}`
	defaultLlama = `{"transformers_version":"5.23.0","architectures":null,"output_hidden_states":false,"return_dict":true,"dtype":null,"chunk_size_feed_forward":0,"is_encoder_decoder":false,
		"id2label":{"0":"LABEL_0","1":"LABEL_1"},"label2id":{"LABEL_0":0,"LABEL_1":1},"problem_type":null,"vocab_size":32000,"hidden_size":4096,"intermediate_size":11008,
		"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":32,"hidden_act":"silu","max_position_embeddings":2048,"initializer_range":0.02,"rms_norm_eps":1e-06,
		"use_cache":true,"pad_token_id":null,"bos_token_id":1,"eos_token_id":2,"pretraining_tp":1,"tie_word_embeddings":false,"rope_parameters":{"rope_theta":10000.0,"rope_type":"default"},
		"attention_bias":false,"attention_dropout":0.0,"mlp_bias":false,"head_dim":128,"_name_or_path":"","model_type":"llama","output_attentions":false}`
)

// TestParseHF: what is published, and what is equal to it, gives the model that its
// authors mean.
func TestParseHF(t *testing.T) {
	gpt2 := stages.Config{Family: stages.GPT2, Layers: 12, Hidden: 768, Heads: 12, KVHeads: 12, FFN: 3072, Context: 1024, Vocab: 50257,
		Dropout: 0.1, Tie: true, NormEps: 1e-5}
	llama := stages.Config{Family: stages.Llama, Layers: 32, Hidden: 4096, Heads: 32, KVHeads: 32, FFN: 11008, Context: 2048, Vocab: 32000,
		RopeTheta: 10000, NormEps: 1e-6}
	tiny := stages.Config{Family: stages.Llama, Layers: 22, Hidden: 2048, Heads: 32, KVHeads: 4, FFN: 5632, Context: 2048, Vocab: 32000,
		RopeTheta: 10000, NormEps: 1e-5}
	mistral := stages.Config{Family: stages.Mistral, Layers: 32, Hidden: 4096, Heads: 32, KVHeads: 8, FFN: 14336, Context: 32768, Vocab: 32000,
		RopeTheta: 10000, NormEps: 1e-5, Window: 4096}
	qwen2 := stages.Config{Family: stages.Qwen2, Layers: 24, Hidden: 896, Heads: 14, KVHeads: 2, FFN: 4864, Context: 32768, Vocab: 151936,
		RopeTheta: 1e6, NormEps: 1e-6, Tie: true}
	qwen3 := stages.Config{Family: stages.Qwen3, Layers: 28, Hidden: 1024, Heads: 16, KVHeads: 8, HeadDim: 128, FFN: 3072, Context: 40960,
		Vocab: 151936, RopeTheta: 1e6, NormEps: 1e-6, Tie: true}
	llama32 := stages.Config{Family: stages.Llama, Layers: 16, Hidden: 2048, Heads: 32, KVHeads: 8, FFN: 8192, Context: 131072, Vocab: 128256,
		RopeTheta: 5e5, NormEps: 1e-5, Tie: true,
		RopeScaling: stages.RopeScaling{Type: "llama3", Factor: 32, Low: 1, High: 4, Original: 8192}}
	smol := stages.Config{Family: stages.SmolLM3, Layers: 36, Hidden: 2048, Heads: 16, KVHeads: 4, FFN: 11008, Context: 65536, Vocab: 128256,
		RopeTheta: 5e6, NormEps: 1e-6, Tie: true, NoRope: []int{3, 7, 11, 15, 19, 23, 27, 31, 35}}
	olmo2 := stages.Config{Family: stages.OLMo2, Layers: 32, Hidden: 4096, Heads: 32, KVHeads: 32, FFN: 11008, Context: 4096, Vocab: 100352,
		RopeTheta: 5e5, NormEps: 1e-6}
	olmo3 := olmo2
	olmo3.Family, olmo3.Layers, olmo3.Window, olmo3.Full = stages.OLMo3, 5, 4096, []int{3}
	phi3 := stages.Config{Family: stages.Phi3, Layers: 32, Hidden: 3072, Heads: 32, KVHeads: 32, FFN: 8192, Context: 4096, Vocab: 32064,
		RopeTheta: 10000, NormEps: 1e-5, Window: 2047}
	with := func(c stages.Config, change func(*stages.Config)) stages.Config {
		change(&c)
		return c
	}
	for _, c := range []struct {
		name, text string
		want       stages.Config
	}{
		{"GPT-2", publishedGPT2, gpt2},
		{"GPT-2 of transformers 5", defaultGPT2, gpt2},
		{"GPT-2 by default", `{"model_type":"gpt2"}`, gpt2},
		{"TinyLlama", publishedLlama, tiny},
		{"Llama of transformers 5", defaultLlama, llama},
		{"Llama by default", `{"model_type":"llama"}`, llama},
		{"GPT-2 by the general names",
			`{"model_type":"gpt2","hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4,"max_position_embeddings":32}`,
			with(gpt2, func(c *stages.Config) {
				c.Hidden, c.Layers, c.Heads, c.KVHeads, c.Context, c.FFN = 64, 2, 4, 4, 32, 256
			})},
		{"twice the same", edited(t, publishedGPT2, "hidden_size", "768"), gpt2},
		{"an inner width", edited(t, publishedGPT2, "n_inner", "1000"), with(gpt2, func(c *stages.Config) { c.FFN = 1000 })},
		{"torch's name of the GELU", edited(t, publishedGPT2, "activation_function", `"gelu_pytorch_tanh"`), gpt2},
		{"three dropouts", edited(t, publishedGPT2, "resid_pdrop", "0.2", "embd_pdrop", "0", "attn_pdrop", ""),
			with(gpt2, func(c *stages.Config) { c.Dropout = 0.2 })},
		{"an epsilon", edited(t, publishedGPT2, "layer_norm_epsilon", "1e-6"), with(gpt2, func(c *stages.Config) { c.NormEps = 1e-6 })},
		{"a head of its own", edited(t, publishedGPT2, "tie_word_embeddings", "false"), with(gpt2, func(c *stages.Config) { c.Tie = false })},
		{"another order of the same product", edited(t, publishedGPT2, "reorder_and_upcast_attn", "true"), gpt2},
		{"a key that is not set", edited(t, publishedGPT2, "of_a_later_release", "null"), gpt2},
		{"positions by both names", edited(t, publishedLlama, "max_sequence_length", "2048"), tiny},
		{"positions by their first name", edited(t, publishedLlama, "max_position_embeddings", "", "max_sequence_length", "512"),
			with(tiny, func(c *stages.Config) { c.Context = 512 })},
		{"notes of other programs", edited(t, publishedLlama, "transformers.js_config", `{"dtype":"q4"}`, "unsloth_version", `"2024.9"`,
			"unsloth_fixed", "true"), tiny},
		{"theta", edited(t, publishedLlama, "rope_theta", "500000"), with(tiny, func(c *stages.Config) { c.RopeTheta = 5e5 })},
		{"theta of transformers 5", edited(t, publishedLlama, "rope_parameters", `{"rope_type":"default","rope_theta":5e5}`),
			with(tiny, func(c *stages.Config) { c.RopeTheta = 5e5 })},
		{"theta in both places", edited(t, publishedLlama, "rope_theta", "5e5", "rope_parameters", `{"rope_theta":500000.0}`),
			with(tiny, func(c *stages.Config) { c.RopeTheta = 5e5 })},
		{"keys that change nothing", edited(t, publishedLlama, "_model_name_or_path", `"x"`, "_attn_implementation", `"sdpa"`,
			"transformers_version", `"5.23.0"`), tiny},
		{"no scaling", edited(t, publishedLlama, "rope_scaling", `{"type":"default"}`, "partial_rotary_factor", "1.0"), tiny},
		{"heads of the usual width", edited(t, publishedLlama, "head_dim", "64", "is_llama_config", "true", "rope_interleaved", "false"), tiny},
		{"as many key heads", edited(t, publishedLlama, "num_key_value_heads", "null", "head_dim", "null"),
			with(tiny, func(c *stages.Config) { c.KVHeads = 32 })},
		{"dropout", edited(t, publishedLlama, "attention_dropout", "0.25"), with(tiny, func(c *stages.Config) { c.Dropout = 0.25 })},
		{"Mistral", publishedMistral, mistral},
		{"Mistral without a window", edited(t, publishedMistral, "sliding_window", "null"),
			with(mistral, func(c *stages.Config) { c.Window = 0 })},
		{"Mistral with the usual window", edited(t, publishedMistral, "sliding_window", ""), mistral},
		{"Mistral with a window beyond its positions", edited(t, publishedMistral, "sliding_window", "32768"),
			with(mistral, func(c *stages.Config) { c.Window = 0 })},
		{"Mistral with narrow heads", edited(t, publishedMistral, "head_dim", "64"), with(mistral, func(c *stages.Config) { c.HeadDim = 64 })},
		{"Qwen 2", publishedQwen2, qwen2},
		{"Qwen 2 with a window", edited(t, publishedQwen2, "use_sliding_window", "true", "sliding_window", "1024", "max_window_layers", "2"),
			with(qwen2, func(c *stages.Config) { c.Window, c.Full = 1024, []int{0, 1} })},
		{"Qwen 2 with the usual window", edited(t, publishedQwen2, "use_sliding_window", "true", "sliding_window", "", "max_window_layers", "0"),
			with(qwen2, func(c *stages.Config) { c.Window = 4096 })},
		{"Qwen 2 whose window no layer has", edited(t, publishedQwen2, "use_sliding_window", "true", "sliding_window", "1024",
			"max_window_layers", "24"), qwen2},
		{"Qwen 2 by layers", edited(t, publishedQwen2, "use_sliding_window", "true", "sliding_window", "16", "num_hidden_layers", "3",
			"layer_types", `["sliding_attention","full_attention","sliding_attention"]`),
			with(qwen2, func(c *stages.Config) { c.Layers, c.Window, c.Full = 3, 16, []int{1} })},
		{"Qwen 2 of transformers 5", edited(t, publishedQwen2, "sliding_window", "null", "num_hidden_layers", "1", "layer_types",
			`["full_attention"]`, "rope_theta", "", "rope_parameters", `{"rope_theta":1e6,"rope_type":"default"}`),
			with(qwen2, func(c *stages.Config) { c.Layers = 1 })},
		{"Qwen 3", publishedQwen3, qwen3},
		{"Qwen 3 with biases", edited(t, publishedQwen3, "attention_bias", "true"),
			with(qwen3, func(c *stages.Config) { c.AttentionBias = true })},
		{"Qwen 3 with the usual heads", edited(t, publishedQwen3, "head_dim", ""), qwen3},
		{"Llama 3.2", publishedLlama32, llama32},
		{"Llama 3.2 of transformers 5", edited(t, publishedLlama32, "rope_scaling", "", "rope_theta", "", "rope_parameters",
			`{"factor":32.0,"high_freq_factor":4.0,"low_freq_factor":1.0,"original_max_position_embeddings":8192,"rope_type":"llama3","rope_theta":500000.0}`), llama32},
		{"linear scaling", edited(t, publishedLlama, "rope_scaling", `{"type":"linear","factor":2.0}`),
			with(tiny, func(c *stages.Config) { c.RopeScaling = stages.RopeScaling{Type: "linear", Factor: 2} })},
		{"biases", edited(t, publishedLlama, "attention_bias", "true", "mlp_bias", "true"),
			with(tiny, func(c *stages.Config) { c.AttentionBias, c.MLPBias = true, true })},
		{"wide heads", edited(t, publishedLlama, "head_dim", "128"), with(tiny, func(c *stages.Config) { c.HeadDim = 128 })},
		{"SmolLM3", publishedSmolLM3, smol},
		{"SmolLM3 by the distance of its layers", edited(t, publishedSmolLM3, "no_rope_layers", "null"), smol},
		{"SmolLM3 with windows", edited(t, publishedSmolLM3, "num_hidden_layers", "3", "no_rope_layers", "[1,0,1]", "use_sliding_window", "true",
			"sliding_window", "64"), with(smol, func(c *stages.Config) {
			c.Layers, c.NoRope, c.Window, c.Full = 3, []int{1}, 64, []int{0, 2}
		})},
		{"OLMo 2", publishedOLMo2, olmo2},
		{"OLMo 3", edited(t, publishedOLMo2, "architectures", "", "model_type", `"olmo3"`, "num_hidden_layers", "5"), olmo3},
		{"OLMo 3 of transformers 5", edited(t, publishedOLMo2, "architectures", "", "model_type", `"olmo3"`, "num_hidden_layers", "5",
			"rope_theta", "", "rope_parameters",
			`{"full_attention":{"rope_type":"linear","factor":2.0,"rope_theta":1e6},"sliding_attention":{"rope_type":"default","rope_theta":1e5}}`),
			with(olmo3, func(c *stages.Config) {
				c.RopeTheta, c.WindowTheta, c.RopeScaling = 1e6, 1e5, stages.RopeScaling{Type: "linear", Factor: 2}
			})},
		{"OLMo 3 with a window beyond its positions", edited(t, publishedOLMo2, "architectures", "", "model_type", `"olmo3"`, "num_hidden_layers",
			"5", "sliding_window", "65536"), with(olmo3, func(c *stages.Config) { c.Window = 65536 })},
		{"OLMo 3 without windows", edited(t, publishedOLMo2, "architectures", "", "model_type", `"olmo3"`, "num_hidden_layers", "1",
			"sliding_window", "null", "layer_types", `["full_attention"]`), with(olmo3,
			func(c *stages.Config) { c.Layers, c.Window, c.Full = 1, 0, nil })},
		{"Phi-3 mini", publishedPhi3, phi3},
		{"multi-token prediction", edited(t, publishedLlama, "num_nextn_predict_layers", "1"),
			with(tiny, func(c *stages.Config) { c.MTPLayers = 1 })},
	} {
		if got, err := stages.ParseHF([]byte(c.text)); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v, %v", c.name, got, c.want, err)
		}
	}
	for _, c := range []struct {
		text string
		want int64
	}{
		{publishedGPT2, 124439808}, {publishedLlama, 1100048384},
		{publishedMistral, 7241732096}, {publishedQwen2, 494032768}, {publishedQwen3, 596049920}, {publishedLlama32, 1235814400},
		{publishedSmolLM3, 3075098624}, {publishedOLMo2, 7298617344}, {publishedPhi3, 3821079552},
		{edited(t, publishedLlama, "num_nextn_predict_layers", "1"), 1100048384 + 44044288 + 2*2048*2048 + 2*2048},
	} {
		if m, err := stages.ParseHF([]byte(c.text)); err != nil || m.Parameters() != c.want {
			t.Errorf("%s has %d parameters, want %d, %v", c.text, m.Parameters(), c.want, err)
		}
	}
}

// TestParseHFRefuses: what Troupe would compute differently, or can't tell the meaning
// of, is refused by name.
func TestParseHFRefuses(t *testing.T) {
	const huge = "2000000000"
	for _, c := range []struct {
		base string
		keys []string // and values
		want string
	}{
		{publishedGPT2, []string{"scale_attn_by_inverse_layer_idx", "true"}, "scale_attn_by_inverse_layer_idx is true"},
		{publishedGPT2, []string{"scale_attn_weights", "false"}, "scale_attn_weights is false"},
		{publishedGPT2, []string{"scale_attn_weights", "null"}, "scale_attn_weights is null"},
		{publishedGPT2, []string{"activation_function", `"relu"`}, `activation_function is "relu"`},
		{publishedGPT2, []string{"activation_function", `"gelu"`}, `activation_function is "gelu"`},
		{publishedGPT2, []string{"add_cross_attention", "true"}, "add_cross_attention"},
		{publishedGPT2, []string{"pruned_heads", `{"0":[1]}`}, "pruned_heads"},
		{publishedGPT2, []string{"quantization_config", `{"bits":4}`}, "quantization_config"},
		{publishedGPT2, []string{"is_causal", "false"}, "is_causal is false"},
		{publishedGPT2, []string{"is_encoder_decoder", "true"}, "is_encoder_decoder is true"},
		{publishedGPT2, []string{"tie_encoder_decoder", "true"}, "tie_encoder_decoder is true"},
		{publishedGPT2, []string{"use_sliding_window", "true"}, "use_sliding_window is true"},
		{publishedGPT2, []string{"architectures", `["GPT2ForSequenceClassification"]`}, "GPT2ForSequenceClassification"},
		{publishedLlama, []string{"architectures", `["LlamaForSequenceClassification"]`}, "LlamaForSequenceClassification"},
		{publishedLlama, []string{"max_sequence_length", "4096"}, "max_sequence_length is 4096"},
		{publishedGPT2, []string{"hidden_size", "64"}, "n_embd is 768"},
		{publishedGPT2, []string{"n_head", "11"}, "768"},
		{publishedGPT2, []string{"n_head", "12.0"}, "n_head is 12.0"},
		{publishedGPT2, []string{"n_head", `"12"`}, `n_head is "12"`},
		{publishedGPT2, []string{"n_head", "null"}, "n_head is null"},
		{publishedGPT2, []string{"n_inner", "0"}, "n_inner is 0"},
		{publishedGPT2, []string{"n_layer", huge}, "n_layer is 2000000000: it must be a whole number from 0 to 4096"},
		{publishedGPT2, []string{"n_layer", "-1"}, "n_layer is -1"},
		{publishedGPT2, []string{"n_embd", huge}, "n_embd"},
		{publishedGPT2, []string{"n_positions", huge}, "n_positions"},
		{publishedGPT2, []string{"n_inner", "99999999999999999999"}, "n_inner"},
		{publishedGPT2, []string{"vocab_size", huge}, "vocab_size"},
		{publishedGPT2, []string{"layer_norm_epsilon", "0"}, "layer_norm_epsilon is 0"},
		{publishedGPT2, []string{"layer_norm_epsilon", "-1e-5"}, "layer_norm_epsilon is -1e-5"},
		{publishedGPT2, []string{"layer_norm_epsilon", "1e999"}, "layer_norm_epsilon is 1e999"},
		{publishedGPT2, []string{"layer_norm_epsilon", "1e-60"}, "layer_norm_epsilon is 1e-60"},
		{publishedGPT2, []string{"resid_pdrop", "1"}, "dropout is 1"},
		{publishedGPT2, []string{"attn_pdrop", `"a lot"`}, "attn_pdrop"},
		{publishedGPT2, []string{"tie_word_embeddings", "1"}, "tie_word_embeddings is 1"},
		{publishedGPT2, []string{"rope_theta", "10000"}, "does not know this key of gpt2"},
		{publishedGPT2, []string{"N_head", "12"}, `"N_head" is 12`},
		{publishedGPT2, []string{"n_hidden", "12"}, "n_head, n_inner"},
		{publishedGPT2, []string{"\u001b[2J", "1"}, `"\x1b[2J" is 1`},
		{publishedGPT2, []string{"model_type", `"bert"`}, `unknown model_type "bert"`},
		{publishedGPT2, []string{"model_type", ""}, "model_type is missing"},
		{publishedGPT2, []string{"num_nextn_predict_layers", huge}, "num_nextn_predict_layers"},
		{publishedLlama, []string{"num_nextn_predict_layers", "-1"}, "num_nextn_predict_layers is -1"},
		{publishedLlama, []string{"num_nextn_predict_layers", "256", "max_position_embeddings", "256"}, "mtp_layers is 256"},
		{publishedLlama, []string{"rope_scaling", `{"type":"linear"}`}, `rope_scaling.type is "linear", which also needs factor`},
		{publishedLlama, []string{"rope_scaling", `{"type":"ntk","factor":2.0}`}, `rope_scaling.type is "ntk"`},
		{publishedLlama, []string{"rope_scaling", `{"type":"linear","factor":0.5}`}, `rope_scaling.factor is 0.5`},
		{publishedLlama, []string{"rope_scaling", `{"type":"linear","rope_type":"llama3","factor":2.0}`}, `mean the same`},
		{publishedLlama, []string{"rope_scaling", `{"type":"linear","factor":2.0,"low_freq_factor":1.0}`},
			`rope_scaling.low_freq_factor is set, but rope_type "linear"`},
		{publishedLlama, []string{"rope_scaling", `{"type":"linear","factor":2.0}`, "rope_parameters", `{"factor":4.0}`}, `factor is 2`},
		{publishedLlama, []string{"rope_parameters", `{"rope_type":"llama3","factor":8.0}`},
			`rope_parameters.rope_type is "llama3", which also needs low_freq_factor`},
		{publishedLlama, []string{"rope_parameters",
			`{"rope_type":"llama3","factor":8.0,"low_freq_factor":4.0,"high_freq_factor":4.0,"original_max_position_embeddings":64}`},
			`high_freq_factor is 4`},
		{publishedLlama, []string{"rope_parameters", `{"rope_type":"mrope","factor":8.0}`}, `rope_parameters.rope_type is "mrope"`},
		{publishedLlama, []string{"original_max_position_embeddings", "64"}, `original_max_position_embeddings`},
		{publishedLlama, []string{"rope_parameters", `{"rope_type":"default","factor":8.0}`}, `rope_parameters.factor`},
		{publishedLlama, []string{"rope_parameters", `{"full_attention":{"rope_type":"default"}}`}, `rope_parameters.full_attention`},
		{publishedLlama, []string{"rope_parameters", `{"partial_rotary_factor":0.5}`}, `rope_parameters.partial_rotary_factor`},
		{publishedLlama, []string{"rope_parameters", `[]`}, `rope_parameters: expected an object`},
		{publishedLlama, []string{"rope_parameters", `{"rope_theta":5e5}`, "rope_theta", "10000"}, "rope_theta is 10000"},
		{publishedLlama, []string{"rope_theta", "0.5"}, "rope_theta is 0.5"},
		{publishedLlama, []string{"rope_theta", "null"}, "rope_theta is null"},
		{publishedLlama, []string{"partial_rotary_factor", "0.5"}, "partial_rotary_factor is 0.5"},
		{publishedLlama, []string{"rope_interleaved", "true"}, "rope_interleaved"},
		{publishedLlama, []string{"attention_bias", "1"}, "attention_bias is 1"},
		{publishedLlama, []string{"mlp_bias", `"yes"`}, `mlp_bias is "yes"`},
		{publishedLlama, []string{"head_dim", "63"}, "even width"},
		{publishedLlama, []string{"head_dim", "1000000"}, "32 heads of 1000000 channels"},
		{publishedQwen2, []string{"attention_bias", "false"}, "attention_bias is false"},
		{publishedQwen2, []string{"mlp_bias", "true"}, "mlp_bias is true"},
		{publishedQwen2, []string{"use_sliding_window", "null"}, "use_sliding_window is null"},
		{publishedQwen2, []string{"layer_types", `["full_attention"]`}, "layer_types has 1 entries, but num_hidden_layers is 24"},
		{publishedQwen2, []string{"layer_types", `["chunked_attention"]`}, `layer 0 is "chunked_attention"`},
		{publishedQwen2, []string{"layer_types", `[1]`}, `layer_types is [1]`},
		{publishedQwen2, []string{"num_hidden_layers", "1", "layer_types", `["sliding_attention"]`},
			`it has no window: use_sliding_window is false`},
		{publishedQwen2, []string{"num_hidden_layers", "1", "use_sliding_window", "true", "sliding_window", "null", "layer_types",
			`["sliding_attention"]`}, `sliding_window is null`},
		{publishedQwen2, []string{"sliding_window", "0"}, "sliding_window is 0"},
		{publishedQwen3, []string{"head_dim", "null"}, "head_dim is null"},
		{publishedSmolLM3, []string{"no_rope_layers", "[1,0]"}, "no_rope_layers has 2 entries, but num_hidden_layers is 36"},
		{publishedSmolLM3, []string{"no_rope_layers", "[2]"}, "no_rope_layers is [2]"},
		{publishedSmolLM3, []string{"no_rope_layers", "null", "no_rope_layer_interval", "0"}, "no_rope_layer_interval is 0"},
		{publishedSmolLM3, []string{"num_hidden_layers", "1", "layer_types", `["sliding_attention"]`},
			"it has no window: use_sliding_window is false"},
		{publishedOLMo2, []string{"mlp_bias", "true"}, "mlp_bias is true"},
		{publishedOLMo2, []string{"clip_qkv", "8.0"}, `"clip_qkv" is 8.0`},
		{publishedOLMo2, []string{"sliding_window", "64"}, "sliding_window is 64"},
		{publishedOLMo2, []string{"architectures", "", "model_type", `"olmo3"`, "rope_theta", "10000"}, "rope_parameters.full_attention"},
		{publishedOLMo2, []string{"architectures", "", "model_type", `"olmo3"`, "rope_parameters", `{"rope_type":"linear","factor":2}`},
			"rope_parameters.rope_type"},
		{publishedOLMo2, []string{"architectures", "", "model_type", `"olmo3"`, "rope_parameters", `{"sliding_attention":{"factor":2}}`},
			"rope_parameters.sliding_attention.factor is 2"},
		{publishedOLMo2, []string{"architectures", "", "model_type", `"olmo3"`, "sliding_window", "null"}, "sliding_window is null"},
		{publishedPhi3, []string{"lm_head_bias", "true"}, "lm_head_bias is true"},
		{publishedPhi3, []string{"attention_bias", "true"}, "attention_bias is true"},
		{publishedPhi3, []string{"use_sliding_window", "true"}, "use_sliding_window is true"},
		{publishedMistral, []string{"layer_types", `["full_attention"]`}, "layer_types"},
		{publishedMistral, []string{"use_sliding_window", `true`}, "use_sliding_window"},
		{publishedMistral, []string{"attention_bias", `true`}, "attention_bias"},
		{publishedLlama, []string{"hidden_act", `"gelu"`}, "hidden_act"},
		{publishedLlama, []string{"sliding_window", "4096"}, "sliding_window is 4096"},
		{publishedLlama, []string{"num_key_value_heads", "0"}, "num_key_value_heads is 0"},
		{publishedLlama, []string{"num_key_value_heads", "5"}, "kv_heads 5"},
		{publishedLlama, []string{"max_position_embeddings", huge}, "max_position_embeddings"},
		{publishedLlama, []string{"n_embd", "2048"}, "does not know this key of llama"},
	} {
		text := edited(t, c.base, c.keys...)
		if _, err := stages.ParseHF([]byte(text)); !errors.Is(err, stages.ErrModel) || !strings.Contains(err.Error(), c.want) ||
			strings.ContainsRune(err.Error(), 27) {
			t.Errorf("%q:\n  error %v, want one about %q", c.keys, err, c.want)
		}
	}
	for text, want := range map[string]string{
		`{`:  "not valid JSON",
		`[]`: "expected an object",
		`{"model_type":"gpt2","n_layer":1,"n_layer":2}`:                                `"n_layer" appears twice`,
		`{"model_type":"llama","rope_parameters":{"rope_theta":1e4,"rope_theta":5e5}}`: `"rope_theta" appears twice`,
		`{"model_type":"gpt2"}` + strings.Repeat(" ", stages.MaxHFBytes):               "bytes; the limit is",
	} {
		if _, err := stages.ParseHF([]byte(text)); !errors.Is(err, stages.ErrModel) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one about %q", err, want)
		}
	}
}

// TestLargestModel: the limits leave room: no product of sizes overflows.
func TestLargestModel(t *testing.T) {
	for _, family := range []string{stages.GPT2, stages.Llama, stages.Gemma4} {
		c := stages.Config{Family: family, Layers: stages.MaxLayers, Hidden: stages.MaxHidden, Heads: stages.MaxHeads, KVHeads: stages.MaxHeads,
			FFN:     stages.MaxFFN,
			Context: stages.MaxContext, Vocab: stages.MaxVocab, RopeTheta: stages.MaxRopeTheta, MTPLayers: stages.MaxMTPLayers}
		if family == stages.Gemma4 {
			c.LayerInput, c.SharedKV, c.WideShared, c.FFN = stages.MaxFFN/stages.MaxLayers, stages.MaxLayers/2, true, stages.MaxFFN/2
		}
		m, err := stages.NewModel(c)
		if err != nil {
			t.Fatal(err)
		}
		var sum float64
		for _, p := range m.Params {
			sum += float64(p.Len())
		}
		if n := c.Parameters(); float64(n) != sum && math.Abs(float64(n)/sum-1) > 1e-9 || n > math.MaxInt64/16 {
			t.Errorf("%s: %d parameters, in floating point %g", family, n, sum)
		}
	}
}

func FuzzParseHF(f *testing.F) {
	for _, c := range families {
		b, err := c.HF()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	for _, text := range []string{publishedGPT2, publishedLlama, defaultGPT2, defaultLlama, publishedMistral, publishedQwen2, publishedQwen3,
		publishedLlama32, publishedSmolLM3, publishedOLMo2, publishedPhi3, publishedGemma2, publishedGemma3, publishedGemma34B,
		publishedMoonlight, publishedQwen2MoE} {
		f.Add([]byte(text))
	}
	for _, keys := range []string{`"hidden_size_per_layer_input":1048576`, `"hidden_size_per_layer_input":-1`,
		`"num_kv_shared_layers":4095,"num_hidden_layers":4096`,
		`"num_kv_shared_layers":29`, `"vocab_size_per_layer_input":7,"vocab_size":7`, `"use_double_wide_mlp":true,"num_kv_shared_layers":20`,
		`"use_double_wide_mlp":true,"num_kv_shared_layers":20,"intermediate_size":4194304`, `"hidden_size_per_layer_input":null`} {
		f.Add([]byte(`{"model_type":"gemma4_text",` + keys + `}`))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := stages.ParseHF(b)
		if err != nil {
			return
		}
		m, err := stages.NewModel(c)
		if err != nil {
			t.Fatalf("%s gives an impossible model: %v", b, err)
		}
		if n := c.Parameters(); n < 1 || n > math.MaxInt64/16 || len(m.Params) > 20*(stages.MaxLayers+stages.MaxMTPLayers+1) {
			t.Errorf("%s gives %d parameters in %d tensors", b, n, len(m.Params))
		}
		written, err := c.HF()
		if err != nil {
			t.Fatal(err)
		}
		if again, err := stages.ParseHF(written); err != nil || !reflect.DeepEqual(again, c) {
			t.Errorf("%s gives %+v, which is read back as %+v, %v", b, c, again, err)
		}
	})
}
