package stages

import (
	"encoding/json"
	"errors"
	"fmt"
)

// DeepSeekV3 is the family of DeepSeek-V3 and of models in its format, such as Moonlight: latent attention, first layers with a dense
// feed-forward part, and then experts that a router with sigmoids, groups and biases chooses, beside a shared one.
const DeepSeekV3 = "deepseek_v3"

var deepSeekV3Family = &decoder{
	model: DeepSeekV3, hf: "DeepseekV3ForCausalLM", names: deepSeekV3Names,
	sizes: sizes{vocab: 129280, positions: 4096, hidden: 7168, layers: 61, heads: 128, ffn: 18432, kvHeads: 128, eps: 1e-6, theta: 10000},
	own: []keySet{attentionBias(false), latentKeys, deepSeekExperts,
		fixed("scoring_func", `"sigmoid"`), fixed("topk_method", `"noaux_tc"`), fixed("moe_layer_freq", `1`), // of the authors' own code
		// What follows from other keys, and what only training or other programs read.
		ignored("head_dim", "qk_head_dim", "output_router_logits", "aux_loss_alpha", "seq_aux", "ep_size", "pretraining_tp", "auto_map")},
	limits: func(c Config) error {
		x := c.Experts
		switch {
		case c.Latent.none():
			return fmt.Errorf("%w: %s has latent attention, but its sizes are not set", ErrModel, c.Family)
		case !x.none() && (x.SharedWidth < 1 || x.SharedWidth%max(x.Width, 1) != 0):
			return fmt.Errorf("%w: in %s the shared expert has a multiple of an expert's width of %d, not %d", ErrModel, c.Family, x.Width,
				x.SharedWidth)
		case !x.none() && (!x.Router.Sigmoid || !x.Router.Bias || x.SharedGate):
			return fmt.Errorf("%w: in %s routers have sigmoids and biases, and the shared expert has no gate", ErrModel, c.Family)
		case !firstLayers(x.Dense):
			return fmt.Errorf("%w: in %s only first layers have no experts, but layers %d have none", ErrModel, c.Family, x.Dense)
		}
		return errors.Join(c.noMLPBias(), c.needExperts())
	},
	scratch: func(c *Config) {
		c.Latent.Interleave = !c.Latent.none()
		c.Experts.Router.Sigmoid, c.Experts.Router.Bias = !c.Experts.none(), !c.Experts.none()
	},
	traits: ExpertTraits{Any: true, Shared: true, DenseFirst: true, Norms: true, UsuallyNormed: true, Scales: true, Groups: true,
		Bias: true},
}

// firstLayers reports whether a list has the first layers.
func firstLayers(list []int) bool {
	for i, layer := range list {
		if layer != i {
			return false
		}
	}
	return true
}

// latentKeys are the keys of latent attention.
var latentKeys = keySet{
	switches: []string{latentSwitch},
	rules: func(r *reading) rules {
		a := &r.latent
		a.qRank.value, a.kvRank.value, a.nope.value, a.rope.value, a.value.value, a.interleave.value = 1536, 512, 128, 64, 128, true
		return rules{
			"q_lora_rank":      a.queries,
			"kv_lora_rank":     whole(&a.kvRank, 1, MaxHidden),
			"qk_nope_head_dim": whole(&a.nope, 1, MaxHidden),
			"qk_rope_head_dim": whole(&a.rope, 2, MaxHidden),
			"v_head_dim":       whole(&a.value, 1, MaxHidden),
			"rope_interleave": func(key string, v json.RawMessage) error {
				if string(v) == "null" { // which is false in transformers
					return a.interleave.set(key, false)
				}
				return truth(&a.interleave)(key, v)
			},
		}
	},
	read: func(r *reading, c *Config) error {
		a := &r.latent
		c.Latent = LatentConfig{QRank: a.qRank.value, KVRank: a.kvRank.value, Nope: a.nope.value, Rope: a.rope.value, Value: a.value.value,
			Interleave: a.interleave.value}
		return nil
	},
	write: func(c Config, h *hfWritten) {
		a := c.Latent
		h.HeadDim = a.Rope // as transformers has it
		if a.QRank > 0 {
			h.add("q_lora_rank", a.QRank)
		} else {
			h.add("q_lora_rank", nil)
		}
		h.add("kv_lora_rank", a.KVRank)
		h.add("qk_nope_head_dim", a.Nope)
		h.add("qk_rope_head_dim", a.Rope)
		h.add("v_head_dim", a.Value)
		h.add("rope_interleave", a.Interleave)
	},
}

// saidLatent are the sizes of latent attention until all keys are read.
type saidLatent struct {
	qRank, kvRank, nope, rope, value said[int]
	interleave                       said[bool]
}

// queries reads q_lora_rank; null: queries have no latent vector.
func (a *saidLatent) queries(key string, v json.RawMessage) error {
	if string(v) == "null" {
		return a.qRank.set(key, 0)
	}
	return whole(&a.qRank, 1, MaxHidden)(key, v)
}

// deepSeekExperts are the keys of DeepSeek-V3's experts.
var deepSeekExperts = keySet{
	switches: []string{expertSwitch, sharedSwitch, sigmoidSwitch, groupsSwitch, scaleSwitch, biasSwitch},
	rules: func(r *reading) rules {
		k := &r.experts
		k.count.value, k.perToken.value, k.width.value, k.every.value, k.renormalize.value = 256, 8, 2048, 1, true
		k.shared.value, k.first.value, k.groups.value, k.topGroups.value, k.scale.value = 1, 3, 8, 4, 2.5
		return rules{
			"n_routed_experts":      whole(&k.count, 1, MaxExperts),
			"num_local_experts":     whole(&k.count, 1, MaxExperts), // the name in transformers 5
			"num_experts_per_tok":   whole(&k.perToken, 1, MaxExperts),
			"moe_intermediate_size": whole(&k.width, 1, MaxFFN),
			"n_shared_experts":      whole(&k.shared, 1, MaxExperts),
			"first_k_dense_replace": whole(&k.first, 0, MaxLayers),
			"n_group":               whole(&k.groups, 1, MaxExperts),
			"topk_group":            whole(&k.topGroups, 1, MaxExperts),
			"routed_scaling_factor": number(&k.scale, minFactor, maxFactor),
			"norm_topk_prob":        truth(&k.renormalize),
		}
	},
	read: func(r *reading, c *Config) error {
		k := &r.experts
		for i := range min(k.first.value, c.Layers) {
			k.dense = append(k.dense, i)
		}
		if c.Experts = k.config(c.Layers); c.Experts.layers(c.Layers) == 0 && c.Layers > 0 {
			return fmt.Errorf("first_k_dense_replace is %d: no layer of %d has experts, which is not supported", k.first.value, c.Layers)
		}
		c.Experts.SharedWidth = k.shared.value * k.width.value
		router := RouterConfig{Sigmoid: true, Bias: true, Groups: k.groups.value, TopGroups: k.topGroups.value, Scale: k.scale.value}
		if router.Groups == 1 && router.TopGroups == 1 { // of all experts
			router.Groups, router.TopGroups = 0, 0
		}
		if router.Scale == 1 {
			router.Scale = 0
		}
		c.Experts.Router = router
		return nil
	},
	write: func(c Config, h *hfWritten) {
		x := c.Experts
		h.add("n_routed_experts", x.Count)
		h.add("num_experts_per_tok", x.PerToken)
		h.add("moe_intermediate_size", x.Width)
		h.add("n_shared_experts", x.SharedWidth/max(x.Width, 1))
		h.add("first_k_dense_replace", len(x.Dense))
		h.add("n_group", max(x.Router.Groups, 1))
		h.add("topk_group", max(x.Router.TopGroups, 1))
		h.add("routed_scaling_factor", floatText(x.scale()))
		h.add("norm_topk_prob", x.Renormalize)
		if c.MTPLayers == 0 {
			h.add("num_nextn_predict_layers", 0) // transformers takes 1 for a missing key
		}
	},
}

var deepSeekV3Names = func() tensorNames {
	n := llamaNames
	n.latent = latentNames{qa: "self_attn.q_a_proj", qNorm: "self_attn.q_a_layernorm", qb: "self_attn.q_b_proj",
		kva: "self_attn.kv_a_proj_with_mqa", kvNorm: "self_attn.kv_a_layernorm", kvb: "self_attn.kv_b_proj"}
	n.experts = expertNames{router: "mlp.gate", list: "mlp.experts", gate: "gate_proj", up: "up_proj", down: "down_proj",
		bias: "mlp.gate.e_score_correction_bias", shared: "mlp.shared_experts"}
	return n
}()
