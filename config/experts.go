package config

import (
	"fmt"

	"github.com/troupe-ml/troupe/stages"
)

// The defaults of a family with experts.
const (
	defaultExperts         = 8
	defaultExpertsPerToken = 2
)

// Values of model.load_balancing_type, as Megatron-Core names them.
const (
	MicrobatchBalance = "aux_loss"
	SequenceBalance   = "seq_aux_loss"
	GlobalBalance     = "global_aux_loss"
)

// usualBiasRate is the default of model.router_bias_update_rate in a family with biases, that of DeepSeek-V3 and of Megatron-Core.
const usualBiasRate = 0.001

// BalancesGlobally reports whether the balance loss has the loads of the step's tokens. Replicas then wait for each other in each
// backward pass, but not in a validation.
func (c *Config) BalancesGlobally() bool {
	return c.Model.LoadBalancingType == GlobalBalance && c.Model.AuxLossWeight > 0
}

// resolveExperts sets the keys of experts that were not given.
func (c *Config) resolveExperts() {
	m := &c.Model
	if !c.IsSet("model.experts") && stages.HasExperts(m.Family) {
		m.Experts = defaultExperts
	}
	if m.Experts == 0 {
		return
	}
	if !c.IsSet("model.experts_per_token") {
		m.ExpertsPerToken = min(defaultExpertsPerToken, m.Experts)
	}
	if !c.IsSet("model.expert_ffn") {
		m.ExpertFFN = m.FFN
	}
	t := stages.ExpertTraitsOf(m.Family)
	if t.Shared && !c.IsSet("model.shared_expert_ffn") {
		m.SharedExpertFFN = m.ExpertFFN
	}
	if t.DenseFirst && !c.IsSet("model.first_k_dense_replace") {
		m.FirstKDenseReplace = min(1, m.Layers-1)
	}
	if !c.IsSet("model.norm_topk_prob") {
		m.NormTopKProb = t.UsuallyNormed
	}
	if !c.IsSet("model.topk_group") {
		m.TopKGroup = (m.NGroup + 1) / 2
	}
	if t.Bias && m.From == "" && !c.IsSet("model.router_bias_update_rate") {
		m.RouterBiasUpdateRate = usualBiasRate
	}
}

// resolveLatent sets the keys of latent attention that were not given.
func (c *Config) resolveLatent() {
	m := &c.Model
	if !stages.HasLatent(m.Family) || m.Heads < 1 {
		return
	}
	if !c.IsSet("model.qk_nope_head_dim") {
		m.QKNopeHeadDim = m.Hidden / m.Heads
	}
	if !c.IsSet("model.qk_rope_head_dim") {
		m.QKRopeHeadDim = roundUp((m.QKNopeHeadDim+1)/2, 2)
	}
	if !c.IsSet("model.v_head_dim") {
		m.VHeadDim = m.QKNopeHeadDim
	}
	if !c.IsSet("model.kv_lora_rank") {
		m.KVLoRARank = 4 * m.QKNopeHeadDim
	}
}

// withoutTrait reports that the family of a configuration has no such setting of experts.
func withoutTrait(has func(stages.ExpertTraits) bool, set func(Model) bool) func(*Config) bool {
	return func(c *Config) bool { return set(c.Model) && !has(stages.ExpertTraitsOf(c.Model.Family)) }
}

// withoutLatent reports that the family of a configuration has no latent attention.
func withoutLatent(set func(Model) int) func(*Config) bool {
	return func(c *Config) bool { return set(c.Model) != 0 && !stages.HasLatent(c.Model.Family) }
}

// experts checks the keys of experts against the others.
func (c *checker) experts() {
	m := c.Model
	if !c.clean("model.family", "model.experts", "model.experts_per_token", "model.expert_ffn", "model.ffn") {
		return
	}
	switch has := stages.HasExperts(m.Family); {
	case has && m.Experts == 0:
		c.disagree("model.experts", "model.family", fmt.Sprintf("is too few: %s has experts", c.say("model.family")),
			`set experts, or use a family without them, such as "qwen3"`)
	case !has && m.Experts > 0:
		c.disagree("model.experts", "model.family", fmt.Sprintf("is set, but %s has no experts", c.say("model.family")),
			`leave experts out, or set family = "qwen3_moe"`)
	case m.Experts == 0 && m.ExpertsPerToken > 0:
		c.disagree("model.experts_per_token", "model.experts", "has no effect: there are no experts",
			"leave experts_per_token out, or set experts")
	case m.Experts == 0 && m.ExpertFFN > 0:
		c.disagree("model.expert_ffn", "model.experts", "has no effect: there are no experts", "leave expert_ffn out, or set experts")
	case m.Experts == 0:
	case m.ExpertsPerToken < 1 || m.ExpertsPerToken > m.Experts:
		c.disagree("model.experts_per_token", "model.experts", fmt.Sprintf("must be from 1 to %s", c.say("model.experts")),
			"reduce experts_per_token, or raise experts")
	case m.ExpertFFN < 1:
		c.disagree("model.expert_ffn", "model.experts", "is too small", "set it to 1 or more")
	case (m.Family == stages.Mixtral || m.Family == stages.GPTOSS) && m.ExpertFFN != m.FFN:
		c.disagree("model.expert_ffn", "model.ffn",
			fmt.Sprintf("differs from %s, but in %s they are the same", c.say("model.ffn"), m.Family), "leave expert_ffn out")
	case m.Family == stages.DeepSeekV3 && c.clean("model.shared_expert_ffn") && (m.SharedExpertFFN == 0 || m.SharedExpertFFN%m.ExpertFFN != 0):
		c.disagree("model.shared_expert_ffn", "model.expert_ffn",
			fmt.Sprintf("is not a multiple of %s, as in deepseek_v3", c.say("model.expert_ffn")), "set it to a multiple")
	case m.Family == stages.Qwen2MoE && c.clean("model.shared_expert_ffn") && m.SharedExpertFFN == 0:
		c.disagree("model.shared_expert_ffn", "model.family", "is too small: qwen2_moe has a shared expert", "leave shared_expert_ffn out")
	}
	c.denseLayers()
	c.routerGroups()
	c.latent()
}

// denseLayers checks which layers have experts.
func (c *checker) denseLayers() {
	m := c.Model
	if m.Experts == 0 || m.From != "" || !c.clean("model.layers", "model.first_k_dense_replace", "model.decoder_sparse_step") {
		return
	}
	switch {
	case m.FirstKDenseReplace >= m.Layers:
		c.disagree("model.first_k_dense_replace", "model.layers", fmt.Sprintf("leaves no layer with experts of %s", c.say("model.layers")),
			"reduce first_k_dense_replace, or use a family without experts")
	case m.DecoderSparseStep > m.Layers:
		c.disagree("model.decoder_sparse_step", "model.layers", fmt.Sprintf("leaves no layer with experts of %s", c.say("model.layers")),
			"reduce decoder_sparse_step, or use a family without experts")
	}
}

// routerGroups checks the groups among which a router chooses.
func (c *checker) routerGroups() {
	m := c.Model
	if !c.clean("model.experts", "model.experts_per_token", "model.n_group", "model.topk_group") {
		return
	}
	switch {
	case m.NGroup == 0 && m.TopKGroup != 0:
		c.disagree("model.topk_group", "model.n_group", "has no effect: there are no groups", "leave topk_group out, or set n_group")
	case m.NGroup == 0 || m.Experts == 0:
	case m.Experts%m.NGroup != 0 || m.Experts/m.NGroup < 2:
		c.disagree("model.n_group", "model.experts", fmt.Sprintf("must divide %s into groups of 2 or more", c.say("model.experts")),
			"choose another number of groups or of experts")
	case m.TopKGroup < 1 || m.TopKGroup > m.NGroup:
		c.disagree("model.topk_group", "model.n_group", fmt.Sprintf("must be from 1 to %s", c.say("model.n_group")), "leave topk_group out")
	case m.ExpertsPerToken > m.TopKGroup*(m.Experts/m.NGroup):
		c.disagree("model.topk_group", "model.experts_per_token",
			fmt.Sprintf("has %d experts, fewer than %s", m.TopKGroup*(m.Experts/m.NGroup), c.say("model.experts_per_token")),
			"raise topk_group, or reduce experts_per_token")
	}
}

// latent checks the sizes of latent attention.
func (c *checker) latent() {
	m := c.Model
	if !stages.HasLatent(m.Family) {
		return
	}
	for _, f := range []struct {
		key   string
		value int
	}{{"model.kv_lora_rank", m.KVLoRARank}, {"model.qk_nope_head_dim", m.QKNopeHeadDim}, {"model.qk_rope_head_dim", m.QKRopeHeadDim},
		{"model.v_head_dim", m.VHeadDim}} {
		if c.clean("model.family", f.key) && f.value == 0 {
			c.disagree(f.key, "model.family", fmt.Sprintf("is too small for %s", c.say("model.family")),
				"leave the key out, or set it to 1 or more")
		}
	}
	if c.clean("model.family", "model.head_dim") && m.HeadDim != 0 {
		c.disagree("model.head_dim", "model.family", fmt.Sprintf("is set, but heads of %s have widths of their own", c.say("model.family")),
			"leave head_dim out, or set qk_nope_head_dim")
	}
	if c.clean("model.family", "model.kv_heads", "model.heads") && m.KVHeads != m.Heads {
		c.disagree("model.kv_heads", "model.heads", fmt.Sprintf("is not %s: each head of latent attention has keys of its own",
			c.say("model.heads")),
			"leave kv_heads out")
	}
	if c.clean("model.family", "model.qk_rope_head_dim") && m.QKRopeHeadDim%2 != 0 {
		c.disagree("model.qk_rope_head_dim", "model.family", "is not even, as rotary positions need", "set it to an even number")
	}
}
