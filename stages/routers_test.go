package stages_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// deepSeek is a small model with latent attention, and with everything that a router may have.
var deepSeek = stages.Config{Family: stages.DeepSeekV3, Layers: 3, Hidden: 22, Heads: 4, KVHeads: 4, FFN: 40, Context: 10, Vocab: 19,
	Dropout:   0.1,
	RopeTheta: 1000, AttentionBias: true, Latent: stages.LatentConfig{QRank: 9, KVRank: 7, Nope: 5, Rope: 4, Value: 6, Interleave: true},
	Experts: stages.ExpertConfig{Count: 6, PerToken: 3, Width: 12, Dense: []int{0}, Renormalize: true, SharedWidth: 24,
		Router: stages.RouterConfig{Sigmoid: true, Bias: true, Groups: 3, TopGroups: 2, Scale: 1.7}}}

// qwen2MoE has a shared expert with a gate.
var qwen2MoE = stages.Config{Family: stages.Qwen2MoE, Layers: 3, Hidden: 24, Heads: 4, KVHeads: 2, FFN: 40, Context: 10, Vocab: 19,
	Dropout:   0.1,
	RopeTheta: 1000, Experts: stages.ExpertConfig{Count: 5, PerToken: 2, Width: 12, Dense: []int{0, 2}, SharedWidth: 18, SharedGate: true}}

func init() { families = append(families, deepSeek, qwen2MoE) }

const biasOf1 = "model.layers.1.mlp.gate.e_score_correction_bias"

// ofBiases is a model whose biases move, with a device, and a microbatch of a step.
func ofBiases(t *testing.T) (*whole, stages.Microbatch) {
	c := deepSeek
	c.Experts.Balance.BiasRate = 0.25
	w := newWhole(t, newDevice(t, 2), c)
	mb := stages.Microbatch{Step: 1, Sequences: 2, Positions: 5, Train: true}
	for k := range 10 {
		mb.Tokens, mb.Targets = append(mb.Tokens, int32(3*k%c.Vocab)), append(mb.Targets, int32(5*k%c.Vocab))
	}
	return w, mb
}

// weightsOf reads a stage's weights.
func weightsOf(w *whole, name string) (values []float32) {
	for _, p := range w.model.Params {
		if p.Name == name {
			return slices.Clone(w.stages[0].HostWeight(p.Index))
		}
	}
	return nil
}

// TestRouterBias: an update moves each bias by its rate toward equal loads of all microbatches of the step, whatever the gradient's
// factor. The bias has no part in the norm and no optimizer state, and a step that is skipped leaves it.
func TestRouterBias(t *testing.T) {
	w, mb := ofBiases(t)
	st := w.stages[0]
	before := weightsOf(w, biasOf1)
	w.run(0, func(l *tensorops.List) { st.RouterStats(l) })
	second := mb
	second.Index, second.FirstSequence = 1, 2
	w.loss([]stages.Microbatch{mb, second})
	var read func() []stages.RouterStats
	w.run(0, func(l *tensorops.List) {
		read = st.RouterStats(l)
		st.GradNorms(l)
	})
	loads := read()[0].Counts
	for _, n := range st.Norms(nil) {
		if p := w.model.Params[n.Param]; p.Name == biasOf1 || p.LoadRate != 0 || math.IsNaN(n.Squared) {
			t.Errorf("%s reports a norm of %g", p.Name, n.Squared)
		}
	}
	w.run(0, func(l *tensorops.List) { st.Apply(l, stages.Update{Count: 1, LR: 1e-3, GradScale: 1e-3}) })
	after := weightsOf(w, biasOf1)
	for e, load := range loads {
		want := float64(before[e])
		switch mean := 20 * 3. / 6; {
		case load < mean:
			want += 0.25
		case load > mean:
			want -= 0.25
		}
		if math.Abs(float64(after[e])-want) > 1e-6 {
			t.Errorf("expert %d with %g tokens: the bias goes from %g to %g, want %g", e, load, before[e], after[e], want)
		}
	}
	w.loss([]stages.Microbatch{mb})
	w.run(0, st.ClearGrads)
	w.run(0, func(l *tensorops.List) { st.Apply(l, stages.Update{Count: 2, LR: 1e-3, GradScale: 1}) })
	if again := weightsOf(w, biasOf1); !slices.Equal(again, after) {
		t.Errorf("without loads the bias goes from %g to %g", after, again)
	}
	for _, p := range w.model.Params {
		if p.LoadRate != 0 && len((stages.Optimizer{Name: stages.AdamW, EMA: 0.5}).Parts(p)) != 0 {
			t.Errorf("%s has a state", p.Name)
		}
	}
}

// TestRouterBiasRollback: a speculative update that was wrong leaves the biases as they were.
func TestRouterBiasRollback(t *testing.T) {
	w, mb := ofBiases(t)
	st, before := w.stages[0], weightsOf(w, biasOf1)
	w.loss([]stages.Microbatch{mb})
	w.run(0, st.GradNorms)
	w.run(0, func(l *tensorops.List) { st.SpeculativeApply(l, stages.Update{Count: 1, LR: 1e-3, GradScale: 1}) })
	if slices.Equal(weightsOf(w, biasOf1), before) {
		t.Fatal("the update moves no bias")
	}
	w.run(0, func(l *tensorops.List) { st.Rollback(l, nil) })
	if after := weightsOf(w, biasOf1); !slices.Equal(after, before) {
		t.Errorf("after a rollback the bias is %g, want %g", after, before)
	}
}

// TestFrozenBias: a bias without a rate is not trained, and neither is that of a frozen layer or below an adapter.
func TestFrozenBias(t *testing.T) {
	rate, adapted := deepSeek, deepSeek
	rate.Experts.Balance.BiasRate = 0.1
	adapted.Experts.Balance.BiasRate = 0.1
	adapted.Adapter = &stages.Adapter{Rank: 2, Alpha: 4, Targets: []string{stages.AllLinear}}
	for what, c := range map[string]struct {
		of     stages.Config
		freeze []string
		frozen bool
	}{"no rate": {deepSeek, nil, true}, "a rate": {rate, nil, false}, "a frozen layer": {rate, []string{"1"}, true},
		"an adapter": {adapted, nil, true}} {
		m := newModel(t, c.of)
		if err := m.Freeze(c.freeze); err != nil {
			t.Fatal(err)
		}
		for _, p := range m.Params {
			if p.Name == biasOf1 && p.Frozen != c.frozen {
				t.Errorf("%s: frozen %v", what, p.Frozen)
			}
		}
	}
}

// TestUnevenLoads: an expert that gets no token has no gradient, one that gets every token has all of it, and all numbers are finite.
func TestUnevenLoads(t *testing.T) {
	for _, rate := range []float64{0, 0.25} {
		c := deepSeek
		c.Experts.Router.Groups, c.Experts.Router.TopGroups = 0, 0
		c.Experts.Balance, c.Experts.AuxLossWeight = stages.BalanceConfig{BiasRate: rate, ZLossWeight: 0.1, BySequence: true}, 0.1
		w := newWhole(t, newDevice(t, 2), c)
		copy(w.weights[biasOf1], []float32{9, 9, 9, -9, -9, -9}) // all tokens go to the first three
		w.load()
		mb := stages.Microbatch{Step: 1, Sequences: 1, Positions: 4, Tokens: []int32{1, 2, 3, 4}, Targets: []int32{2, 3, 4, 5}, Train: true}
		grads := w.grads([]stages.Microbatch{mb})
		width := c.Experts.Width * c.Hidden
		for _, name := range []string{"gate", "up", "down"} {
			g := grads["model.layers.1.mlp.experts."+name+"_proj.weight"]
			for e := range c.Experts.Count {
				sum := 0.0
				for _, v := range g[e*width : (e+1)*width] {
					sum += math.Abs(v)
				}
				if (sum == 0) != (e >= 3) || math.IsNaN(sum) {
					t.Errorf("expert %d, %s: the gradient adds up to %g", e, name, sum)
				}
			}
		}
		w.run(0, func(l *tensorops.List) { w.stages[0].Apply(l, stages.Update{Count: 1, LR: 1e-3, GradScale: 1}) })
		if b := weightsOf(w, biasOf1); float64(b[0]) != 9-rate || float64(b[5]) != -9+rate {
			t.Errorf("rate %g: the biases become %g", rate, b)
		}
	}
}

// TestRefusedRouters: what does not fit together is refused by name.
func TestRefusedRouters(t *testing.T) {
	for want, change := range map[string]func(c *stages.Config){
		"6 experts cannot be divided into 4 groups": func(c *stages.Config) { c.Experts.Router.Groups = 4 },
		"6 groups of 6 experts have one each": func(c *stages.Config) {
			c.Experts.Router.Groups,
				c.Experts.Router.TopGroups = 6, 4
		},
		"in 4 groups: it must be from 1 to the number of groups, 3": func(c *stages.Config) { c.Experts.Router.TopGroups = 4 },
		"each token has 3 experts, but its 1 groups have 2":         func(c *stages.Config) { c.Experts.Router.TopGroups = 1 },
		"each token has 7 experts":                                  func(c *stages.Config) { c.Experts.PerToken = 7 },
		"there are no groups":                                       func(c *stages.Config) { c.Experts.Router.Groups = 0 },
		"a multiple of an expert's width of 12, not 18":             func(c *stages.Config) { c.Experts.SharedWidth = 18 },
		"deepseek_v3 has no gate of the shared expert":              func(c *stages.Config) { c.Experts.SharedGate = true },
		"only first layers have no experts, but layers [1]":         func(c *stages.Config) { c.Experts.Dense = []int{1} },
		"routers have sigmoids and biases":                          func(c *stages.Config) { c.Experts.Router.Sigmoid = false },
		"the rate of the routers' biases is -1":                     func(c *stages.Config) { c.Experts.Balance.BiasRate = -1 },
		"the weight of the z-loss is NaN":                           func(c *stages.Config) { c.Experts.Balance.ZLossWeight = math.NaN() },
		"the jitter of the routers' input is 1":                     func(c *stages.Config) { c.Experts.Balance.Jitter = 1 },
		"latent attention, but its sizes are not set": func(c *stages.Config) {
			c.Latent, c.Hidden = stages.LatentConfig{}, 24
		},
		"channels of a head with rotary positions: it must be even": func(c *stages.Config) { c.Latent.Rope = 3 },
		"channels of the latent keys and values":                    func(c *stages.Config) { c.Latent.KVRank = 0 },
		"2 heads of keys and values for 4 heads":                    func(c *stages.Config) { c.KVHeads = 2 },
		"head_dim is 8":                                             func(c *stages.Config) { c.HeadDim = 8 },
		"qwen2_moe has no bias of the router":                       func(c *stages.Config) { *c = qwen2MoE; c.Experts.Router.Bias = true },
		"llama has no latent attention": func(c *stages.Config) {
			c.Family, c.Experts = stages.Llama,
				stages.ExpertConfig{}
		},
		"a shared one with a gate": func(c *stages.Config) { *c = qwen2MoE; c.Experts.SharedGate = false },
	} {
		c := deepSeek
		change(&c)
		if err := c.Validate(); !errors.Is(err, stages.ErrModel) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

const (
	publishedMoonlight = `{"architectures":["DeepseekV3ForCausalLM"],"attention_bias":false,"attention_dropout":0.0,
		"auto_map":{"AutoConfig":"configuration_deepseek.DeepseekV3Config"},"aux_loss_alpha":0.001,"bos_token_id":163584,
		"eos_token_id":163585,
		"first_k_dense_replace":1,"hidden_act":"silu","hidden_size":2048,"initializer_range":0.02,"intermediate_size":11264,
		"kv_lora_rank":512,
		"max_position_embeddings":8192,"model_type":"deepseek_v3","moe_intermediate_size":1408,"moe_layer_freq":1,"n_group":1,
		"n_routed_experts":64,"n_shared_experts":2,"norm_topk_prob":true,"num_attention_heads":16,"num_experts_per_tok":6,
		"num_hidden_layers":27,"num_key_value_heads":16,"num_nextn_predict_layers":0,"pretraining_tp":1,"q_lora_rank":null,
		"qk_nope_head_dim":128,"qk_rope_head_dim":64,"rms_norm_eps":1e-05,"rope_scaling":null,"rope_theta":50000.0,
		"routed_scaling_factor":2.446,"scoring_func":"sigmoid","seq_aux":true,"tie_word_embeddings":false,"topk_group":1,
		"topk_method":"noaux_tc","torch_dtype":"bfloat16","transformers_version":"4.48.3","use_cache":true,"v_head_dim":128,
		"vocab_size":163840}`
	publishedQwen2MoE = `{"architectures":["Qwen2MoeForCausalLM"],"attention_dropout":0.0,"bos_token_id":151643,"decoder_sparse_step":1,
		"eos_token_id":151643,"hidden_act":"silu","hidden_size":2048,"initializer_range":0.02,"intermediate_size":5632,
		"max_position_embeddings":8192,"max_window_layers":21,"model_type":"qwen2_moe","moe_intermediate_size":1408,"norm_topk_prob":false,
		"num_attention_heads":16,"num_experts":60,"num_experts_per_tok":4,"num_hidden_layers":24,"num_key_value_heads":16,
		"output_router_logits":false,"rms_norm_eps":1e-06,"rope_theta":1000000.0,"router_aux_loss_coef":0.001,
		"shared_expert_intermediate_size":5632,"sliding_window":32768,"tie_word_embeddings":false,"torch_dtype":"bfloat16",
		"transformers_version":"4.39.0.dev0","use_cache":true,"use_sliding_window":false,"vocab_size":151936}`
)

// TestParseRouters: published models have their authors' sizes, and what Troupe would compute differently is refused by name.
func TestParseRouters(t *testing.T) {
	for _, c := range []struct {
		name, text string
		parameters int64
	}{
		{"Moonlight 16B-A3B", publishedMoonlight, 15960110208},
		{"Qwen1.5-MoE-A2.7B", publishedQwen2MoE, 14315784192},
		{"with the name in transformers 5", strings.Replace(publishedMoonlight, "n_routed_experts", "num_local_experts", 1), 15960110208},
	} {
		got, err := stages.ParseHF([]byte(c.text))
		if n := got.Parameters(); err != nil || n != c.parameters {
			t.Errorf("%s has %d parameters, want %d: %+v, %v", c.name, n, c.parameters, got, err)
		}
	}
	for value, want := range map[string]bool{"true": true, "false": false, "null": false} { // transformers takes null for false
		got, err := stages.ParseHF([]byte(edited(t, publishedMoonlight, "rope_interleave", value)))
		if err != nil || got.Latent.Interleave != want {
			t.Errorf("rope_interleave is %s: interleaved %v, %v", value, got.Latent.Interleave, err)
		}
	}
	for _, c := range []struct {
		base string
		keys []string // and values
		want string
	}{
		{publishedMoonlight, []string{"scoring_func", `"softmax"`}, `scoring_func is "softmax"`},
		{publishedMoonlight, []string{"topk_method", `"greedy"`}, `topk_method is "greedy"`},
		{publishedMoonlight, []string{"moe_layer_freq", "2"}, "moe_layer_freq is 2"},
		{publishedMoonlight, []string{"num_key_value_heads", "8"}, "8 heads of keys and values for 16 heads"},
		{publishedMoonlight, []string{"n_group", "7"}, "64 experts cannot be divided into 7 groups"},
		{publishedMoonlight, []string{"first_k_dense_replace", "27"}, "no layer of 27 has experts"},
		{publishedMoonlight, []string{"q_lora_rank", "0"}, "q_lora_rank is 0"},
		{publishedMoonlight, []string{"n_shared_experts", "null"}, "n_shared_experts is null"},
		{publishedMoonlight, []string{"sliding_window", "4096"}, "sliding_window is 4096"},
		{publishedMoonlight, []string{"quantization_config", `{"quant_method":"fp8"}`}, "quantization_config is"},
		{publishedQwen2MoE, []string{"use_sliding_window", "true"}, "use_sliding_window is true"},
		{publishedQwen2MoE, []string{"qkv_bias", "false"}, "qkv_bias is false"},
		{publishedQwen2MoE, []string{"layer_types", `["sliding_attention"]`}, `layer 0 is "sliding_attention"`},
	} {
		_, err := stages.ParseHF([]byte(edited(t, c.base, c.keys...)))
		if !errors.Is(err, stages.ErrModel) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.keys, err, c.want)
		}
	}
	m := newModel(t, deepSeek)
	if err := m.CheckContext(2); !errors.Is(err, stages.ErrModel) || !strings.Contains(err.Error(), "context parallelism of 2") {
		t.Errorf("context groups: %v", err)
	}
}
