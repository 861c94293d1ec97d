package stages_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/stages"
)

const (
	publishedGemma2 = `{"architectures":["Gemma2ForCausalLM"],"attention_bias":false,"attention_dropout":0.0,"attn_logit_softcapping":50.0,
		"bos_token_id":2,
		"cache_implementation":"hybrid","eos_token_id":1,"final_logit_softcapping":30.0,"head_dim":256,"hidden_act":"gelu_pytorch_tanh",
		"hidden_activation":"gelu_pytorch_tanh","hidden_size":2304,"initializer_range":0.02,"intermediate_size":9216,
			"max_position_embeddings":8192,
		"model_type":"gemma2","num_attention_heads":8,"num_hidden_layers":26,"num_key_value_heads":4,"pad_token_id":0,"query_pre_attn_scalar":256,
		"rms_norm_eps":1e-06,"rope_theta":10000.0,"sliding_window":4096,"torch_dtype":"float32","transformers_version":"4.42.4","use_cache":true,
		"vocab_size":256000}`
	publishedGemma3 = `{"architectures":["Gemma3ForCausalLM"],"attention_bias":false,"attention_dropout":0.0,"attn_logit_softcapping":null,
		"bos_token_id":2,
		"cache_implementation":"hybrid","eos_token_id":[1,106],"final_logit_softcapping":null,"head_dim":256,
			"hidden_activation":"gelu_pytorch_tanh",
		"hidden_size":1152,"initializer_range":0.02,"intermediate_size":6912,"max_position_embeddings":32768,"model_type":"gemma3_text",
		"num_attention_heads":4,"num_hidden_layers":26,"num_key_value_heads":1,"pad_token_id":0,"query_pre_attn_scalar":256,"rms_norm_eps":1e-06,
		"rope_local_base_freq":10000,"rope_scaling":null,"rope_theta":1000000,"sliding_window":512,"sliding_window_pattern":6,
		"torch_dtype":"bfloat16","transformers_version":"4.50.0.dev0","use_cache":true,"vocab_size":262144}`
	publishedGemma34B = `{"architectures":["Gemma3ForConditionalGeneration"],"boi_token_index":255999,"eoi_token_index":256000,
		"eos_token_id":[1,106],
		"image_token_index":262144,"initializer_range":0.02,"mm_tokens_per_image":256,"model_type":"gemma3","text_config":{"hidden_size":2560,
		"intermediate_size":10240,"model_type":"gemma3_text","num_hidden_layers":34,"rope_scaling":{"factor":8.0,"rope_type":"linear"},
		"sliding_window":1024},"torch_dtype":"bfloat16","transformers_version":"4.50.0.dev0","vision_config":{"hidden_size":1152,"image_size":896,
		"intermediate_size":4304,"model_type":"siglip_vision_model","num_attention_heads":16,"num_hidden_layers":27,"patch_size":14,
		"vision_use_head":false}}`
)

// every lists the layers n−1, 2n−1, and so on.
func every(n, layers int) (list []int) {
	for i := n - 1; i < layers; i += n {
		list = append(list, i)
	}
	return list
}

// TestGemma: published configurations of Gemma 2 and 3 have the models and the sizes that their authors say.
func TestGemma(t *testing.T) {
	two := stages.Config{Family: stages.Gemma2, Layers: 26, Hidden: 2304, Heads: 8, KVHeads: 4, HeadDim: 256, FFN: 9216, Context: 8192,
		Vocab: 256000, RopeTheta: 1e4, NormEps: 1e-6, Tie: true, Window: 4096, Full: every(2, 26), AttentionSoftCap: 50, LogitSoftCap: 30}
	three := stages.Config{Family: stages.Gemma3, Layers: 26, Hidden: 1152, Heads: 4, KVHeads: 1, HeadDim: 256, FFN: 6912, Context: 32768,
		Vocab: 262144, RopeTheta: 1e6, WindowTheta: 1e4, NormEps: 1e-6, Tie: true, Window: 512, Full: every(6, 26)}
	images := stages.Config{Family: stages.Gemma3, Layers: 34, Hidden: 2560, Heads: 8, KVHeads: 4, HeadDim: 256, FFN: 10240, Context: 131072,
		Vocab: 262208, RopeTheta: 1e6, WindowTheta: 1e4, NormEps: 1e-6, Tie: true, Window: 1024, Full: every(6, 34),
		RopeScaling: stages.RopeScaling{Type: "linear", Factor: 8}}
	with := func(c stages.Config, change func(*stages.Config)) stages.Config {
		change(&c)
		return c
	}
	for _, c := range []struct {
		name, text string
		want       stages.Config
		parameters int64 // 0: not compared
	}{
		{"Gemma 2 2B", publishedGemma2, two, 2614341888},
		{"Gemma 3 1B", publishedGemma3, three, 999885952},
		{"the text model of Gemma 3 4B", publishedGemma34B, images, 3880263168},
		{"Gemma 2 27B's factor of the scores", edited(t, publishedGemma2, "query_pre_attn_scalar", "144"),
			with(two, func(c *stages.Config) { c.AttentionScale = 1.0 / 12 }), 0},
		{"no soft caps", edited(t, publishedGemma2, "attn_logit_softcapping", "null", "final_logit_softcapping", "null"),
			with(two, func(c *stages.Config) { c.AttentionSoftCap, c.LogitSoftCap = 0, 0 }), 0},
		{"Gemma 2 by layers", edited(t, publishedGemma2, "num_hidden_layers", "2", "layer_types", `["full_attention","sliding_attention"]`),
			with(two, func(c *stages.Config) { c.Layers, c.Full = 2, []int{0} }), 0},
		{"Gemma 3 by the distance of its layers", edited(t, publishedGemma3, "sliding_window_pattern", "2"),
			with(three, func(c *stages.Config) { c.Full = every(2, 26) }), 0},
		{"Gemma 3 of transformers 5", edited(t, publishedGemma3, "rope_theta", "", "rope_local_base_freq", "", "rope_scaling", "",
			"sliding_window_pattern", "", "_sliding_window_pattern", "6", "rope_parameters",
			`{"full_attention":{"rope_type":"default","rope_theta":1e6},"sliding_attention":{"rope_type":"default","rope_theta":1e4}}`), three, 0},
		{"Gemma 3 by default", `{"model_type":"gemma3_text","hidden_size":2560,"intermediate_size":10240,"num_hidden_layers":34,
			"sliding_window":1024,
			"rope_scaling":{"rope_type":"linear","factor":8.0}}`, images, 0},
	} {
		got, err := stages.ParseHF([]byte(c.text))
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v, %v", c.name, got, c.want, err)
		} else if c.parameters != 0 && got.Parameters() != c.parameters {
			t.Errorf("%s has %d parameters, want %d", c.name, got.Parameters(), c.parameters)
		}
	}
	for _, c := range []struct {
		base string
		keys []string // and values
		want string
	}{
		{publishedGemma2, []string{"hidden_activation", `"silu"`}, `hidden_activation is "silu"`},
		{publishedGemma2, []string{"query_pre_attn_scalar", "0"}, "query_pre_attn_scalar is 0"},
		{publishedGemma2, []string{"query_pre_attn_scalar", "1e9"}, "query_pre_attn_scalar is 1e9"},
		{publishedGemma2, []string{"attn_logit_softcapping", "-50"}, "attn_logit_softcapping is -50"},
		{publishedGemma2, []string{"final_logit_softcapping", "1e300"}, "final_logit_softcapping is 1e300"},
		{publishedGemma2, []string{"final_logit_softcapping", `"30"`}, `final_logit_softcapping is "30"`},
		{publishedGemma2, []string{"use_bidirectional_attention", "true"}, "use_bidirectional_attention is true"},
		{publishedGemma2, []string{"sliding_window", "null"}, "sliding_window is null"},
		{publishedGemma2, []string{"head_dim", "null"}, "head_dim is null"},
		{publishedGemma2, []string{"num_attention_heads", "20"}, "hidden 2304 is not a multiple of heads 20"},
		{publishedGemma2, []string{"mlp_bias", "true"}, "mlp_bias is true"},
		{publishedGemma3, []string{"sliding_window_pattern", "0"}, "sliding_window_pattern is 0"},
		{publishedGemma3, []string{"attn_logit_softcapping", "50.0"}, "attn_logit_softcapping is 50.0"},
		{publishedGemma3, []string{"rope_local_base_freq", "0"}, "rope_local_base_freq is 0"},
		{publishedGemma3, []string{"rope_parameters", `{"rope_type":"linear","factor":8.0}`}, "rope_parameters.rope_type"},
		{publishedGemma34B, []string{"text_config", ""}, "text_config is missing"},
		{publishedGemma34B, []string{"text_config", "[1]"}, "text_config: expected an object"},
		{publishedGemma34B, []string{"text_config", `{"model_type":"llama"}`},
			`text_config.model_type is "llama", but gemma3 needs "gemma3_text"`},
		{publishedGemma34B, []string{"text_config", `{"tie_word_embeddings":false}`}, "text_config.tie_word_embeddings is false"},
		{publishedGemma34B, []string{"text_config", `{"n_embd":1}`}, "does not know this key of gemma3_text"},
		{publishedGemma34B, []string{"hidden_size", "2560"}, "hidden_size is 2560, but Troupe does not know this key of gemma3"},
		{publishedGemma34B, []string{"architectures", `["Gemma3ForCausalLM"]`}, "Gemma3ForCausalLM"},
		{publishedGemma34B, []string{"quantization_config", `{"bits":4}`}, "quantization_config"},
	} {
		text := edited(t, c.base, c.keys...)
		if _, err := stages.ParseHF([]byte(text)); !errors.Is(err, stages.ErrModel) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q:\n  error %v, want one about %q", c.keys, err, c.want)
		}
	}
	if o := stages.OtherPartsOf([]byte(publishedGemma34B)); o.Model != "gemma3" || !o.Has("vision_tower.x") ||
		!o.Has("model.multi_modal_projector.x") || o.Has("language_model.model.norm.weight") {
		t.Errorf("other parts %+v", o)
	}
}

// TestGemma4: what transformers writes of a model of Gemma 4 is read, and what Troupe does not compute is refused.
func TestGemma4(t *testing.T) {
	const text = `{"architectures":["Gemma4ForCausalLM"],"attention_bias":false,"attention_dropout":0.0,"attention_k_eq_v":true,
		"bos_token_id":2,
		"dtype":"bfloat16","enable_moe_block":false,"eos_token_id":1,"final_logit_softcapping":30.0,"head_dim":256,
		"hidden_activation":"gelu_pytorch_tanh","hidden_size":2304,"hidden_size_per_layer_input":0,"initializer_range":0.02,
		"intermediate_size":9216,"layer_types":["sliding_attention","full_attention","sliding_attention","full_attention"],
		"max_position_embeddings":131072,"model_type":"gemma4_text","moe_intermediate_size":null,"num_attention_heads":8,"num_experts":null,
		"num_hidden_layers":4,"num_key_value_heads":4,"num_kv_shared_layers":0,"pad_token_id":0,
		"per_layer_config":{"1":{"head_dim":512,"num_key_value_heads":2},"3":{"head_dim":512,"num_key_value_heads":2}},"rms_norm_eps":1e-06,
		"rope_parameters":{"full_attention":{"partial_rotary_factor":0.25,"rope_theta":1000000.0,"rope_type":"proportional"},
		"sliding_attention":{"rope_theta":10000.0,"rope_type":"default"}},"sliding_window":1024,"tie_word_embeddings":true,"top_k_experts":null,
		"transformers_version":"5.24.0","use_bidirectional_attention":null,"use_cache":true,"use_double_wide_mlp":false,"vocab_size":262144,
		"vocab_size_per_layer_input":262144}`
	want := stages.Config{Family: stages.Gemma4, Layers: 4, Hidden: 2304, Heads: 8, KVHeads: 4, HeadDim: 256, FullHeadDim: 512, FullKVHeads: 2,
		ValuesAreKeys: true, FFN: 9216, Context: 131072, Vocab: 262144, RopeTheta: 1e6, WindowTheta: 1e4, NormEps: 1e-6, Tie: true,
		Window: 1024, Full: []int{1, 3}, LogitSoftCap: 30, RopeScaling: stages.RopeScaling{Type: "proportional", Partial: 0.25}}
	for name, same := range map[string]string{
		"as transformers writes it": text,
		"by the keys of all layers": edited(t, text, "per_layer_config", "", "num_global_key_value_heads", "2"),
		"without its positions":     edited(t, text, "rope_parameters", ""),
		"in a model for images": `{"model_type":"gemma4","architectures":["Gemma4ForConditionalGeneration"],"vision_config":null,
			"audio_config":{},"text_config":` + edited(t, text, "architectures", "null") + `}`,
	} {
		if got, err := stages.ParseHF([]byte(same)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v, %v", name, got, want, err)
		}
	}
	for _, c := range []struct {
		keys []string // and values
		want string
	}{
		{[]string{"hidden_size_per_layer_input", "-1"}, "hidden_size_per_layer_input is -1"},
		{[]string{"hidden_size_per_layer_input", "1e3"}, "hidden_size_per_layer_input is 1e3"},
		{[]string{"hidden_size_per_layer_input", `"256"`}, `hidden_size_per_layer_input is "256"`},
		{[]string{"hidden_size_per_layer_input", "99999999999999999999"}, "hidden_size_per_layer_input is 9999"},
		{[]string{"hidden_size_per_layer_input", "1048576", "num_hidden_layers", "8", "layer_types", "", "sliding_window", "8",
			"per_layer_config", ""}, "hidden_size_per_layer_input is 1048576, and num_hidden_layers is 8"},
		{[]string{"hidden_size_per_layer_input", "", "vocab_size", "1000"}, "vocab_size_per_layer_input is 262144, but vocab_size is 1000"},
		{[]string{"hidden_size_per_layer_input", "8", "vocab_size_per_layer_input", "", "vocab_size", "1000"},
			"vocab_size_per_layer_input is missing, which means 262144, but vocab_size is 1000"},
		{[]string{"hidden_size_per_layer_input", "8", "vocab_size_per_layer_input", "262145"},
			"vocab_size_per_layer_input is 262145, but vocab_size"},
		{[]string{"hidden_size_per_layer_input", "8", "vocab_size_per_layer_input", "-5"}, "vocab_size_per_layer_input is -5"},
		{[]string{"hidden_size_per_layer_input", "8", "vocab_size_per_layer_input", "1e18"}, "vocab_size_per_layer_input is 1e18"},
		{[]string{"hidden_size_per_layer_input", "8", "vocab_size_per_layer_input", "null"}, "vocab_size_per_layer_input is null"},
		{[]string{"num_kv_shared_layers", "-1"}, "num_kv_shared_layers is -1"},
		{[]string{"num_kv_shared_layers", "null"}, "num_kv_shared_layers is null"},
		{[]string{"num_kv_shared_layers", "4"}, "num_kv_shared_layers is 4, but num_hidden_layers is 4"},
		{[]string{"num_kv_shared_layers", "3"}, "num_kv_shared_layers is 3, but no layer before these"},
		{[]string{"num_kv_shared_layers", "1000000"}, "num_kv_shared_layers is 1000000: it must be a whole number from 0 to 4096"},
		{[]string{"use_double_wide_mlp", "1"}, "use_double_wide_mlp is 1"},
		{[]string{"use_double_wide_mlp", "null"}, "use_double_wide_mlp is null"},
		{[]string{"use_double_wide_mlp", "true", "num_kv_shared_layers", "2", "intermediate_size", "4194304"},
			"use_double_wide_mlp is true, but twice the intermediate_size of 4194304"},
		{[]string{"enable_moe_block", "true"}, "enable_moe_block is true"},
		{[]string{"use_bidirectional_attention", `"all"`}, `use_bidirectional_attention is "all"`},
		{[]string{"rope_theta", "10000"}, "rope_theta is 10000"},
		{[]string{"layer_types", `["full_attention","full_attention","full_attention","sliding_attention"]`, "per_layer_config", ""},
			"the last layer of gemma4_text attends to all positions"},
		{[]string{"per_layer_config", `[]`}, "per_layer_config: expected an object"},
		{[]string{"per_layer_config", `{"x":{}}`}, "per_layer_config.x: it must be the number of a layer"},
		{[]string{"per_layer_config", `{"-1":{}}`}, "per_layer_config.-1"},
		{[]string{"per_layer_config", `{"7":{}}`}, "per_layer_config has layers beyond num_hidden_layers"},
		{[]string{"per_layer_config", `{"1":{"hidden_size":3}}`}, "per_layer_config.1.hidden_size is 3"},
		{[]string{"per_layer_config", `{"1":{"head_dim":512}}`}, "per_layer_config: layer 3 differs"},
		{[]string{"per_layer_config", `{"0":{"head_dim":512}}`}, "per_layer_config: layer 0 has a window"},
		{[]string{"per_layer_config", `{"1":{"head_dim":1e9}}`}, "per_layer_config.1.head_dim is 1e9"},
		{[]string{"per_layer_config", "", "global_head_dim", "511"}, "heads of 511 channels"},
		{[]string{"per_layer_config", "", "num_global_key_value_heads", "3"}, "heads 8 is not a multiple of kv_heads 3"},
		{[]string{"attention_k_eq_v", "null"}, "attention_k_eq_v is null"},
	} {
		if _, err := stages.ParseHF([]byte(edited(t, text, c.keys...))); !errors.Is(err, stages.ErrModel) ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%q:\n  error %v, want one about %q", c.keys, err, c.want)
		}
	}
}

// gemma4Small returns the config.json of a text model like E2B, in which every so many of the layers attend to all positions.
func gemma4Small(every, layers int) string {
	types := make([]string, layers)
	for i := range types {
		if types[i] = `"sliding_attention"`; (i+1)%every == 0 {
			types[i] = `"full_attention"`
		}
	}
	return fmt.Sprintf(`{"model_type":"gemma4_text","hidden_size":1536,"intermediate_size":6144,"num_hidden_layers":%d,"num_attention_heads":8,
		"num_key_value_heads":1,"head_dim":256,"global_head_dim":512,"sliding_window":512,"num_kv_shared_layers":20,"use_double_wide_mlp":true,
		"hidden_size_per_layer_input":256,"vocab_size_per_layer_input":262144,"vocab_size":262144,"final_logit_softcapping":30.0,
		"layer_types":[%s]}`, layers, strings.Join(types, ","))
}

// TestGemma4Small: the text models of the sizes of E2B and E4B have the numbers of weights that transformers' have, whatever a model for
// images and text says around them.
func TestGemma4Small(t *testing.T) {
	e2b := gemma4Small(5, 35)
	e4b := edited(t, gemma4Small(6, 42), "hidden_size", "2560", "intermediate_size", "10240", "num_key_value_heads", "2",
		"num_kv_shared_layers", "18", "use_double_wide_mlp", "false")
	// Of transformers' Gemma4ForCausalLM of these sizes, with the constant of each layer.
	const wantE2B, wantE4B = 4628569379, 7463013418
	for _, c := range []struct {
		name, text  string
		layers      int
		parameters  int64
		first, last int // widths of the edges after the embedding and before the last layer
	}{
		{"E2B", e2b, 35, wantE2B, 1536 + 35*256, 1536 + 256 + 2*512},
		{"E2B by default", edited(t, e2b, "hidden_size_per_layer_input", "", "vocab_size_per_layer_input", "", "vocab_size", ""), 35, wantE2B,
			1536 + 35*256, 1536 + 256 + 2*512},
		{"E4B", e4b, 42, wantE4B, 2560 + 42*256, 2560 + 256 + 2*2*512},
		{"E4B in a model for images", `{"model_type":"gemma4","architectures":["Gemma4ForConditionalGeneration"],"vision_config":null,
			"text_config":` + e4b + `}`, 42, wantE4B, 2560 + 42*256, 2560 + 256 + 2*2*512},
	} {
		got, err := stages.ParseHF([]byte(c.text))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		m := newModel(t, got)
		if n := got.Parameters(); n != c.parameters || m.EdgeWidth(1) != c.first || m.EdgeWidth(c.layers) != c.last {
			t.Errorf("%s has %d parameters, want %d, and edges of %d to %d channels, want %d to %d", c.name, n, c.parameters, m.EdgeWidth(1),
				m.EdgeWidth(c.layers), c.first, c.last)
		}
	}
}
