package stages_test

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/ref"
)

const (
	publishedQwen3MoE = `{"architectures":["Qwen3MoeForCausalLM"],"attention_bias":false,"attention_dropout":0.0,
		"bos_token_id":151643,"decoder_sparse_step":1,"eos_token_id":151645,
		"head_dim":128,"hidden_act":"silu","hidden_size":2048,"initializer_range":0.02,"intermediate_size":6144,
		"max_position_embeddings":40960,"max_window_layers":48,
		"mlp_only_layers":[],"model_type":"qwen3_moe","moe_intermediate_size":768,"norm_topk_prob":true,"num_attention_heads":32,
		"num_experts":128,"num_experts_per_tok":8,
		"num_hidden_layers":48,"num_key_value_heads":4,"output_router_logits":false,"rms_norm_eps":1e-06,"rope_scaling":null,
		"rope_theta":1000000.0,"router_aux_loss_coef":0.001,
		"sliding_window":null,"tie_word_embeddings":false,"torch_dtype":"bfloat16","transformers_version":"4.51.0",
		"use_cache":true,"use_sliding_window":false,"vocab_size":151936}`
	publishedMixtral = `{"architectures":["MixtralForCausalLM"],"attention_dropout":0.0,"bos_token_id":1,"eos_token_id":2,
		"hidden_act":"silu","hidden_size":4096,
		"initializer_range":0.02,"intermediate_size":14336,"max_position_embeddings":32768,"model_type":"mixtral",
		"num_attention_heads":32,"num_experts_per_tok":2,
		"num_hidden_layers":32,"num_key_value_heads":8,"num_local_experts":8,"output_router_logits":false,"rms_norm_eps":1e-05,
		"rope_theta":1000000.0,
		"router_aux_loss_coef":0.02,"sliding_window":null,"tie_word_embeddings":false,"torch_dtype":"bfloat16",
		"transformers_version":"4.36.0.dev0","use_cache":true,"vocab_size":32000}`
	publishedGPTOSS = `{"architectures":["GptOssForCausalLM"],"attention_bias":true,"attention_dropout":0.0,"eos_token_id":200002,
		"experts_per_token":4,"head_dim":64,"hidden_act":"silu","hidden_size":2880,"initial_context_length":4096,
		"initializer_range":0.02,"intermediate_size":2880,"layer_types":["sliding_attention","full_attention","sliding_attention",
		"full_attention"],"max_position_embeddings":131072,"model_type":"gpt_oss","num_attention_heads":64,"num_experts_per_tok":4,
		"num_hidden_layers":4,"num_key_value_heads":8,"num_local_experts":32,"output_router_logits":false,"pad_token_id":199999,
		"quantization_config":{"modules_to_not_convert":["model.layers.*.self_attn","model.layers.*.mlp.router","model.embed_tokens",
		"lm_head"],"quant_method":"mxfp4"},"rms_norm_eps":1e-05,"rope_scaling":{"beta_fast":32.0,"beta_slow":1.0,"factor":32.0,
		"original_max_position_embeddings":4096,"rope_type":"yarn","truncate":false},"rope_theta":150000,"router_aux_loss_coef":0.9,
		"sliding_window":128,"swiglu_limit":7.0,"tie_word_embeddings":false,"transformers_version":"4.55.0.dev0","use_cache":true,
		"vocab_size":201088}`
)

// TestParseExperts: published models with experts have their authors' sizes.
func TestParseExperts(t *testing.T) {
	qwen := stages.Config{Family: stages.Qwen3MoE, Layers: 48, Hidden: 2048, Heads: 32, KVHeads: 4, HeadDim: 128, FFN: 6144, Context: 40960,
		Vocab: 151936, RopeTheta: 1e6, NormEps: 1e-6, Experts: stages.ExpertConfig{Count: 128, PerToken: 8, Width: 768, Renormalize: true}}
	mixtral := stages.Config{Family: stages.Mixtral, Layers: 32, Hidden: 4096, Heads: 32, KVHeads: 8, FFN: 14336, Context: 32768,
		Vocab: 32000, RopeTheta: 1e6, NormEps: 1e-5, Experts: stages.ExpertConfig{Count: 8, PerToken: 2, Width: 14336, Renormalize: true}}
	oss := stages.Config{Family: stages.GPTOSS, Layers: 4, Hidden: 2880, Heads: 64, KVHeads: 8, HeadDim: 64, FFN: 2880, Context: 131072,
		Vocab: 201088, RopeTheta: 150000, NormEps: 1e-5, AttentionBias: true, Window: 128, Full: []int{1, 3},
		RopeScaling: stages.RopeScaling{Type: "yarn", Factor: 32, Original: 4096, BetaFast: 32, BetaSlow: 1, Fractional: true},
		Experts:     stages.ExpertConfig{Count: 32, PerToken: 4, Width: 2880, Renormalize: true}}
	gate, plain, large := oss, oss, oss
	gate.Experts.GateLimit, gate.Experts.GateAlpha, gate.AttentionBias = 5, 1.5, false
	plain.RopeScaling, plain.RopeTheta = stages.RopeScaling{}, 1000
	large.Layers, large.Full = 24, []int{1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23}
	every := qwen
	every.Layers, every.Experts.Dense = 6, []int{0, 2, 3, 4}
	for _, c := range []struct {
		name, text string
		want       stages.Config
	}{
		{"Qwen 3 30B-A3B", publishedQwen3MoE, qwen},
		{"the name in transformers 5", strings.Replace(publishedQwen3MoE, "num_experts\"", "num_local_experts\"", 1), qwen},
		{"every second layer, and not the fourth", edited(t, publishedQwen3MoE, "num_hidden_layers", "6", "decoder_sparse_step", "2",
			"mlp_only_layers", "[3]"), every},
		{"Mixtral 8x7B", publishedMixtral, mixtral},
		{"GPT-OSS, of 4 layers", publishedGPTOSS, oss},
		{"GPT-OSS 20B, by default", edited(t, publishedGPTOSS, "num_hidden_layers", "24", "layer_types", "null", "rope_scaling", "",
			"swiglu_limit", "", "attention_bias", ""), large},
		{"another gate, and no biases of attention", edited(t, publishedGPTOSS, "swiglu_limit", "5.0", "swiglu_alpha", "1.5",
			"attention_bias", "false"), gate},
		{"without scaling", edited(t, publishedGPTOSS, "rope_scaling", "", "rope_theta", "", "rope_parameters",
			`{"rope_type":"default","rope_theta":1000}`), plain},
	} {
		if got, err := stages.ParseHF([]byte(c.text)); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v, %v", c.name, got, c.want, err)
		}
	}
	for _, c := range []struct {
		of   stages.Config
		want int64
	}{{qwen, 30532122624}, {mixtral, 46702792704}, {large, 20914757184}} {
		if got := c.of.Parameters(); got != c.want {
			t.Errorf("%s has %d parameters, want %d", c.of.Family, got, c.want)
		}
	}
	// A token's product is with 8 of 128 experts: 3.3 of 30.5 billion parameters, of which the embedding multiplies nothing.
	_, layer, head := qwen.FLOPs(1)
	if active := (48*layer + head) / 2; active < 2.9e9 || active > 3.1e9 {
		t.Errorf("a token takes %g multiplications", active)
	}
}

// TestParseExpertsRefuses: what Troupe would compute differently is refused by name.
func TestParseExpertsRefuses(t *testing.T) {
	for _, c := range []struct {
		base string
		keys []string // and values
		want string
	}{
		{publishedMixtral, []string{"router_jitter_noise", "0.1"}, "router_jitter_noise is 0.1"},
		{publishedMixtral, []string{"num_experts_per_tok", "9"}, "each token has 9 experts: it must be from 1 to the number of experts, 8"},
		{publishedMixtral, []string{"num_experts", "4"}, "The two keys mean the same"},
		{publishedMixtral, []string{"norm_topk_prob", "false"}, "norm_topk_prob"},
		{publishedQwen3MoE, []string{"num_experts", "0"}, "num_experts is 0: it must be a whole number from 1 to 4096"},
		{publishedQwen3MoE, []string{"decoder_sparse_step", "49"}, `no layer has experts`},
		{publishedQwen3MoE, []string{"mlp_only_layers", `[-1]`}, "mlp_only_layers is [-1]"},
		{publishedQwen3MoE, []string{"mlp_only_layers", `"x"`}, `mlp_only_layers is "x"`},
		{publishedQwen3MoE, []string{"use_sliding_window", "true"}, "use_sliding_window is true"},
		{publishedQwen3MoE, []string{"moe_intermediate_size", "0"}, "moe_intermediate_size is 0"},
		{publishedGPTOSS, []string{"experts_per_token", "2"}, "experts_per_token is 2, but num_experts_per_tok is 4"},
		{publishedGPTOSS, []string{"rope_scaling", "null"}, "rope_scaling is null, which"},
		{publishedGPTOSS, []string{"swiglu_limit", "0"}, "swiglu_limit is 0"},
		{publishedGPTOSS, []string{"swiglu_alpha", "null"}, "swiglu_alpha is null"},
		{publishedGPTOSS, []string{"sliding_window", "null"}, "layer_types: layer 0 is \"sliding_attention\", but it has no window"},
		{publishedGPTOSS, []string{"hidden_act", `"gelu"`}, `hidden_act is "gelu"`},
		{publishedGPTOSS, []string{"router_jitter_noise", "0.1"}, "router_jitter_noise"},
		{publishedGPTOSS, []string{"quantization_config", `{"quant_method":"gptq"}`}, `quantization_config.quant_method is "gptq"`},
		{publishedGPTOSS, []string{"quantization_config", `{}`}, "quantization_config.quant_method is missing"},
		{publishedGPTOSS, []string{"quantization_config", `{"quant_method":"mxfp4","bits":4}`}, "quantization_config.bits is 4"},
		{publishedMixtral, []string{"quantization_config", `{"quant_method":"mxfp4"}`}, "quantization_config is"},
		{publishedQwen3, []string{"num_experts", "8"}, `"num_experts" is 8, but Troupe does not know this key of qwen3`},
	} {
		_, err := stages.ParseHF([]byte(edited(t, c.base, c.keys...)))
		if !errors.Is(err, stages.ErrModel) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.keys, err, c.want)
		}
	}
	small := families[4]
	small.Context = 16
	m := newModel(t, small)
	if err := m.CheckContext(2); err != nil {
		t.Error(err)
	}
	none := small
	none.Experts = stages.ExpertConfig{}
	if err := none.Validate(); err == nil || !strings.Contains(err.Error(), "their number is not set") {
		t.Errorf("without experts: %v", err)
	}
}

// TestHFOverQuantized: a config.json keeps its keys when the model is written, except that of weights in fewer bits.
func TestHFOverQuantized(t *testing.T) {
	c, err := stages.ParseHF([]byte(publishedGPTOSS))
	if err != nil {
		t.Fatal(err)
	}
	text, err := c.HFOver([]byte(publishedGPTOSS), "float32")
	if err != nil || strings.Contains(string(text), "quantization_config") || !strings.Contains(string(text), `"pad_token_id": 199999`) {
		t.Errorf("%s\n%v", text, err)
	}
	if again, err := stages.ParseHF(text); err != nil || !reflect.DeepEqual(again, c) {
		t.Errorf("%+v, %v", again, err)
	}
}

// TestBalanceGradient: the gradients of the balance loss and of the z-loss are their slopes, in layers of which some experts get no token.
func TestBalanceGradient(t *testing.T) {
	dev := ref.New()
	t.Cleanup(dev.Close)
	small := stages.Config{Family: stages.Qwen3MoE, Layers: 2, Hidden: 8, Heads: 2, KVHeads: 1, FFN: 9, Context: 4, Vocab: 7,
		RopeTheta: 100,
		Experts:   stages.ExpertConfig{Count: 6, PerToken: 1, Width: 5, AuxLossWeight: 3}}
	sequences, z, jitter, sigmoids := small, small, small, deepSeek
	sequences.Experts.Balance.BySequence = true
	z.Experts.AuxLossWeight, z.Experts.Balance.ZLossWeight = 0, 2
	jitter.Experts.Balance = stages.BalanceConfig{ZLossWeight: 0.5, Jitter: 0.3}
	sigmoids.Dropout, sigmoids.Experts.AuxLossWeight, sigmoids.Experts.Balance.BySequence = 0, 3, true
	for what, c := range map[string]stages.Config{"microbatch": small, "sequences": sequences, "z": z, "jitter": jitter,
		"sigmoids": sigmoids} {
		w := newWhole(t, dev, c)
		mbs := []stages.Microbatch{{Step: 1, Sequences: 2, Positions: 4, Tokens: []int32{1, 2, 3, 4, 5, 6, 1, 2},
			Targets: []int32{2, 3, 4, 5, 6, 0, 1, 3}, Train: true}}
		grads := w.grads(mbs)
		const step = 1e-4
		for _, name := range []string{"model.layers.1.mlp.gate.weight", "model.layers.0.self_attn.o_proj.weight"} {
			v := w.weights[name]
			for i := 0; i < len(v); i += 5 {
				was := v[i]
				at := func(x float32) (float64, float64) {
					v[i] = x
					w.load()
					return w.loss(mbs), float64(x)
				}
				up, high := at(was + step)
				down, low := at(was - step)
				v[i] = was
				slope := (up - down) / (high - low)
				if d := math.Abs(slope - grads[name][i]); d > 2e-5*max(1, math.Abs(slope)) {
					t.Errorf("%s, %s[%d]: the gradient is %g, the slope %g", what, name, i, grads[name][i], slope)
				}
			}
		}
	}
}

// TestRouterStats: the statistics of a step are those of all its microbatches, and begin again with the next step.
func TestRouterStats(t *testing.T) {
	dev := newDevice(t, 2)
	c := families[4]
	w := newWhole(t, dev, c)
	var mbs []stages.Microbatch
	for i := range 3 {
		mb := stages.Microbatch{Step: 1, Index: i, FirstSequence: 2 * i, Sequences: 2, Positions: 5, Train: true, Recompute: i == 1}
		for k := range 10 {
			mb.Tokens, mb.Targets = append(mb.Tokens, int32((3*k+i)%c.Vocab)), append(mb.Targets, int32((5*k+i)%c.Vocab))
		}
		mbs = append(mbs, mb)
	}
	read := func() []stages.RouterStats {
		var of func() []stages.RouterStats
		w.run(0, func(l *tensorops.List) { of = w.stages[0].RouterStats(l) })
		return of()
	}
	read()
	w.loss(mbs)
	all := read()
	if len(all) != 2 || all[0].Layer != 1 || all[1].Layer != 3 {
		t.Fatalf("%+v", all)
	}
	for _, s := range all {
		total := 0.0
		for _, n := range s.Counts {
			total += n
		}
		if s.Rows != 30 || total != 30*float64(c.Experts.PerToken) || !(s.Entropy > 0 && s.Entropy/s.Rows <= math.Log(5)) ||
			!(s.AuxLoss > 0) {
			t.Errorf("%+v", s)
		}
	}
	if again := read(); again != nil {
		t.Errorf("without a microbatch: %+v", again)
	}
}

// TestRouterNaN: weights that are not numbers give a loss that is not one, which a run skips, and no failure.
func TestRouterNaN(t *testing.T) {
	w := newWhole(t, newDevice(t, 2), families[4])
	w.weights["model.layers.0.mlp.gate.weight"][3] = float32(math.NaN())
	w.load()
	mb := stages.Microbatch{Step: 1, Sequences: 1, Positions: 4, Tokens: []int32{1, 2, 3, 4}, Targets: []int32{2, 3, 4, 5}, Train: true}
	if loss := w.loss([]stages.Microbatch{mb}); !math.IsNaN(loss) {
		t.Errorf("the loss is %g", loss)
	}
}
