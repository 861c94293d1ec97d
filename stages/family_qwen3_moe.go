package stages

import (
	"errors"
	"fmt"
)

// Qwen3MoE is the family of Qwen 3 with experts: Qwen 3 whose feed-forward part, in all or some layers, is a mixture
// of experts.
const Qwen3MoE = "qwen3_moe"

var qwen3MoEFamily = &decoder{
	model: Qwen3MoE, hf: "Qwen3MoeForCausalLM", names: qwen3MoENames,
	sizes: sizes{vocab: 151936, positions: 32768, hidden: 2048, layers: 24, heads: 32, ffn: 6144, kvHeads: 4, eps: 1e-6, theta: 10000},
	own: []keySet{attentionBias(false), qwen3MoEKeys, trainingOfExperts,
		ignored("sliding_window", "max_window_layers")}, // without use_sliding_window they have no effect
	spec:   func(_ Config, _ int, l *layerSpec) { l.qkNorm = qkNormHeads },
	limits: func(c Config) error { return errors.Join(c.noWindow(), c.noMLPBias(), c.needExperts()) },
	traits: ExpertTraits{Any: true, SparseStep: true, Norms: true, UsuallyNormed: true},
}

var qwen3MoEKeys = qwenExperts(128, 8, 768, Qwen3)

// qwenExperts are the keys of Qwen's experts, with the values of missing ones. dense is the family of a model without any.
func qwenExperts(count, perToken, width int, dense string) keySet {
	return keySet{
		switches: []string{expertSwitch},
		rules: func(r *reading) rules {
			k := &r.experts
			k.count.value, k.perToken.value, k.width.value, k.every.value = count, perToken, width, 1
			return rules{
				"num_experts":           whole(&k.count, 1, MaxExperts),
				"num_local_experts":     whole(&k.count, 1, MaxExperts), // the name in transformers 5
				"num_experts_per_tok":   whole(&k.perToken, 1, MaxExperts),
				"moe_intermediate_size": whole(&k.width, 1, MaxFFN),
				"decoder_sparse_step":   whole(&k.every, 1, MaxLayers),
				"mlp_only_layers":       k.denseLayers,
				"norm_topk_prob":        truth(&k.renormalize),
			}
		},
		read: func(r *reading, c *Config) error {
			if c.Experts = r.experts.config(c.Layers); c.Experts.layers(c.Layers) == 0 && c.Layers > 0 {
				return fmt.Errorf("no layer has experts with decoder_sparse_step %d and mlp_only_layers %d: use model_type %q",
					r.experts.every.value, r.experts.dense, dense)
			}
			return nil
		},
		write: func(c Config, h *hfWritten) {
			x := c.Experts
			h.add("num_experts", x.Count)
			h.add("num_experts_per_tok", x.PerToken)
			h.add("moe_intermediate_size", x.Width)
			h.add("decoder_sparse_step", 1)
			h.add("mlp_only_layers", append([]int{}, x.Dense...))
			h.add("norm_topk_prob", x.Renormalize)
		},
	}
}

var qwen3MoENames = func() tensorNames {
	n := llamaNames
	n.experts = expertNames{router: "mlp.gate", list: "mlp.experts", gate: "gate_proj", up: "up_proj", down: "down_proj"}
	return n
}()
