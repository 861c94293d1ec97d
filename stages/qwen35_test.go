package stages_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/stages"
)

const (
	// What transformers 5.24 writes for its own defaults, without the layers' kinds.
	defaultQwen35 = `{"architectures":null,"attention_bias":false,"attention_dropout":0.0,"head_dim":256,"hidden_act":"silu",
		"hidden_size":4096,"initializer_range":0.02,
		"intermediate_size":12288,"linear_conv_kernel_dim":4,"linear_key_head_dim":128,"linear_num_key_heads":16,"linear_num_value_heads":32,
			"linear_value_head_dim":128,
		"max_position_embeddings":32768,"model_type":"qwen3_5_text","num_attention_heads":16,"num_hidden_layers":32,"num_key_value_heads":4,
			"rms_norm_eps":1e-06,
		"rope_parameters":{"partial_rotary_factor":0.25,"rope_theta":10000.0,"rope_type":"default"},"tie_word_embeddings":false,
			"transformers_version":"5.24.0","use_cache":true,
		"vocab_size":248320}`
	imagesQwen35 = `{"architectures":["Qwen3_5ForConditionalGeneration"],"model_type":"qwen3_5","image_token_id":248056,
		"video_token_id":248057,
		"vision_start_token_id":248053,"vision_end_token_id":248054,"vision_config":{"depth":27},"tie_word_embeddings":false,
			"text_config":` + defaultQwen35 + `}`
)

func TestParseQwen35(t *testing.T) {
	own := stages.Config{Family: stages.Qwen35, Layers: 32, Hidden: 4096, Heads: 16, KVHeads: 4, FFN: 12288, Context: 32768, Vocab: 248320,
		RopeTheta: 10000, NormEps: 1e-6, RopeScaling: stages.RopeScaling{Partial: 0.25},
		Delta: stages.DeltaConfig{KeyHeads: 16, ValueHeads: 32, KeyWidth: 128, ValueWidth: 128, Taps: 4}}
	for i := range 32 {
		if i%4 != 3 {
			own.Delta.Layers = append(own.Delta.Layers, i)
		}
	}
	with := func(change func(*stages.Config)) stages.Config {
		c := own
		change(&c)
		return c
	}
	for _, c := range []struct {
		name, text string
		want       stages.Config
	}{
		{"the defaults", defaultQwen35, own},
		{"the defaults left out", `{"model_type":"qwen3_5_text"}`, own},
		{"the text model of one for images", imagesQwen35, own},
		{"whole heads that rotate", edited(t, defaultQwen35, "rope_parameters", `{"partial_rotary_factor":1.0,"rope_theta":10000.0}`),
			with(func(c *stages.Config) { c.RopeScaling.Partial = 0 })},
		{"axes of positions", edited(t, defaultQwen35, "rope_parameters",
			`{"partial_rotary_factor":0.5,"rope_theta":1e7,"rope_type":"default","mrope_interleaved":true,"mrope_section":[11,11,10]}`),
			with(func(c *stages.Config) { c.RopeScaling.Partial, c.RopeTheta = 0.5, 1e7 })},
		{"an interval", edited(t, defaultQwen35, "num_hidden_layers", "3", "full_attention_interval", "2"),
			with(func(c *stages.Config) { c.Layers, c.Delta.Layers = 3, []int{0, 2} })},
		{"kinds of layers", edited(t, defaultQwen35, "num_hidden_layers", "2", "layer_types", `["full_attention","linear_attention"]`),
			with(func(c *stages.Config) { c.Layers, c.Delta.Layers = 2, []int{1} })},
		{"attention alone", edited(t, defaultQwen35, "num_hidden_layers", "1", "layer_types", `["full_attention"]`),
			with(func(c *stages.Config) { c.Layers, c.Delta = 1, stages.DeltaConfig{} })},
		{"keys of published files", edited(t, defaultQwen35, "attn_output_gate", "true", "mamba_ssm_dtype", `"float32"`, "mlp_only_layers", "[]",
			"mtp_num_hidden_layers", "1", "mtp_use_dedicated_embeddings", "false"), own},
	} {
		got, err := stages.ParseHF([]byte(c.text))
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v, %v", c.name, got, c.want, err)
			continue
		}
		text, err := got.HF()
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if again, err := stages.ParseHF(text); err != nil || !reflect.DeepEqual(again, got) {
			t.Errorf("%s: read back as %+v, want %+v, %v", c.name, again, got, err)
		}
	}
	if n := own.Parameters(); n != 8953803264 {
		t.Errorf("it has %d parameters, in transformers 8953803264", n)
	}
	if o := stages.OtherPartsOf([]byte(imagesQwen35)); o.Model != "qwen3_5" || !o.Has("model.visual.x") || !o.Has("mtp.x") ||
		o.Has("model.language_model.norm.weight") {
		t.Errorf("other parts %+v", o)
	}
}

func TestParseQwen35Refuses(t *testing.T) {
	for _, c := range []struct {
		keys []string // and values
		want string
	}{
		{[]string{"linear_num_value_heads", "24"}, "24 value heads, which is not a multiple of the 16 key heads"},
		{[]string{"linear_num_key_heads", "0"}, "linear_num_key_heads is 0"},
		{[]string{"linear_key_head_dim", "512"}, "linear_key_head_dim is 512"},
		{[]string{"linear_value_head_dim", "-1"}, "linear_value_head_dim is -1"},
		{[]string{"linear_conv_kernel_dim", "1e9"}, "linear_conv_kernel_dim is 1e9"},
		{[]string{"linear_conv_kernel_dim", "17"}, "linear_conv_kernel_dim is 17"},
		{[]string{"full_attention_interval", "0"}, "full_attention_interval is 0"},
		{[]string{"layer_types", `["full_attention"]`}, "layer_types has 1 entries, but num_hidden_layers is 32"},
		{[]string{"layer_types", `["sliding_attention"]`}, `layer 0 is "sliding_attention"`},
		{[]string{"layer_types", `[3]`}, "layer_types is [3]"},
		{[]string{"attn_output_gate", "false"}, "attn_output_gate is false"},
		{[]string{"mlp_only_layers", "[1]"}, "mlp_only_layers is [1]"},
		{[]string{"mlp_bias", "true"}, "mlp_bias is true"},
		{[]string{"sliding_window", "64"}, "sliding_window is 64"},
		{[]string{"num_experts", "8"}, `"num_experts" is 8`},
		{[]string{"rope_parameters", `{"partial_rotary_factor":0.001}`}, "0 of a head's 256 channels rotate"},
	} {
		text := edited(t, defaultQwen35, c.keys...)
		if _, err := stages.ParseHF([]byte(text)); !errors.Is(err, stages.ErrModel) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q:\n  error %v, want one about %q", c.keys, err, c.want)
		}
	}
	c := stages.Config{Family: stages.Qwen35, Layers: 2, Hidden: 24, Heads: 4, KVHeads: 4, FFN: 40, Context: 8, Vocab: 19, RopeTheta: 100,
		Delta: stages.DeltaConfig{Layers: []int{0}, KeyHeads: 2, ValueHeads: 4, KeyWidth: 4, ValueWidth: 4, Taps: 4}}
	m, err := stages.NewModel(c)
	if err != nil {
		t.Fatal(err)
	}
	for err, want := range map[error]string{
		m.CheckTensor(4):  "the 2 key heads of the gated delta rule layers are not a multiple of it",
		m.CheckContext(2): "the state of the gated delta rule layers passes from each position to the next",
	} {
		if !errors.Is(err, stages.ErrModel) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one about %q", err, want)
		}
	}
	for _, change := range []func(*stages.Config){
		func(c *stages.Config) { c.Delta.Layers = []int{2} },
		func(c *stages.Config) { c.Delta.Layers = nil },
		func(c *stages.Config) { c.Delta.Taps = 0 },
		func(c *stages.Config) { c.Delta.ValueHeads = 3 },
		func(c *stages.Config) { c.Family = stages.Qwen3 },
	} {
		bad := c
		change(&bad)
		if err := bad.Validate(); !errors.Is(err, stages.ErrModel) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
