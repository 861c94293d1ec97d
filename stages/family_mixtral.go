package stages

import (
	"errors"
	"fmt"
)

// Mixtral is the family of Mixtral: Mistral with a mixture of experts in every layer.
const Mixtral = "mixtral"

var mixtralFamily = &decoder{
	model: Mixtral, hf: "MixtralForCausalLM", names: mixtralNames,
	sizes: sizes{vocab: 32000, positions: 4096 * 32, hidden: 4096, layers: 32, heads: 32, ffn: 14336, kvHeads: 8, eps: 1e-5, theta: 1e6},
	own: []keySet{oneWindow(0), mixtralKeys, trainingOfExperts,
		fixed("router_jitter_noise", `0`, `null`)}, // a random factor of the router's input in training
	limits: func(c Config) error {
		x := c.Experts
		if !x.none() && (x.Width != c.FFN || len(x.Dense) > 0 || !x.Renormalize) {
			return fmt.Errorf("%w: in %s all layers have experts, each of width ffn, and the weights of a token's experts add up to 1",
				ErrModel, c.Family)
		}
		return errors.Join(c.plain(), c.allWindowed(), c.needExperts())
	},
	traits:  ExpertTraits{Any: true, UsuallyNormed: true},
	scratch: func(c *Config) { c.Experts.Renormalize = !c.Experts.none() },
}

var mixtralKeys = keySet{
	switches: []string{expertSwitch},
	rules: func(r *reading) rules {
		k := &r.experts
		k.count.value, k.perToken.value, k.every.value, k.renormalize.value = 8, 2, 1, true
		return rules{
			"num_local_experts":   whole(&k.count, 1, MaxExperts),
			"num_experts":         whole(&k.count, 1, MaxExperts),
			"num_experts_per_tok": whole(&k.perToken, 1, MaxExperts),
		}
	},
	read: func(r *reading, c *Config) error {
		r.experts.width.value = c.FFN
		c.Experts = r.experts.config(c.Layers)
		return nil
	},
	write: func(c Config, h *hfWritten) {
		h.add("num_local_experts", c.Experts.Count)
		h.add("num_experts_per_tok", c.Experts.PerToken)
	},
}

var mixtralNames = func() tensorNames {
	n := llamaNames
	const at = "block_sparse_moe."
	n.experts = expertNames{router: at + "gate", list: at + "experts", gate: "w1", up: "w3", down: "w2", otherRouter: "mlp.gate",
		otherList: "mlp.experts"}
	return n
}()
