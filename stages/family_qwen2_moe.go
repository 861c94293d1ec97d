package stages

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Qwen2MoE is the family of Qwen 2 with experts, such as Qwen1.5-MoE-A2.7B: Qwen 2 whose feed-forward part, in all or some layers, is a
// mixture of experts with a shared one, whose output a gate multiplies.
const Qwen2MoE = "qwen2_moe"

var qwen2MoEFamily = &decoder{
	model: Qwen2MoE, hf: "Qwen2MoeForCausalLM", names: qwen2MoENames,
	sizes: sizes{vocab: 151936, positions: 32768, hidden: 2048, layers: 24, heads: 16, ffn: 5632, kvHeads: 16, eps: 1e-6, theta: 10000},
	own: []keySet{qwenExperts(60, 4, 1408, Qwen2), gatedShared, trainingOfExperts, fixed("attention_bias", `true`, `null`),
		fixed("qkv_bias", `true`), {rules: func(r *reading) rules { return rules{"layer_types": onlyFull} }},
		ignored("sliding_window", "max_window_layers")}, // without use_sliding_window they have no effect
	spec: func(_ Config, _ int, l *layerSpec) { l.qkvBias, l.outputBias = true, false },
	limits: func(c Config) error {
		if x := c.Experts; !x.none() && (x.SharedWidth == 0 || !x.SharedGate) {
			return fmt.Errorf("%w: in %s each layer with experts has a shared one with a gate: set its width", ErrModel, c.Family)
		}
		return errors.Join(c.plain(), c.noWindow(), c.needExperts())
	},
	scratch: func(c *Config) { c.Experts.SharedGate = !c.Experts.none() },
	traits:  ExpertTraits{Any: true, Shared: true, SparseStep: true, Norms: true},
}

// gatedShared is the key of a shared expert with a gate.
var gatedShared = keySet{
	switches: []string{sharedSwitch, sharedGateSwitch},
	rules: func(r *reading) rules {
		r.experts.shared.value = 5632
		return rules{"shared_expert_intermediate_size": whole(&r.experts.shared, 1, MaxFFN)}
	},
	read: func(r *reading, c *Config) error {
		c.Experts.SharedWidth, c.Experts.SharedGate = r.experts.shared.value, true
		return nil
	},
	write: func(c Config, h *hfWritten) { h.add("shared_expert_intermediate_size", c.Experts.SharedWidth) },
}

// onlyFull is the rule of layer_types in a family without windows.
func onlyFull(key string, v json.RawMessage) error {
	var w windows
	if err := w.layerTypes(key, v); err != nil {
		return err
	}
	for i, t := range w.types {
		if t != fullAttention {
			return fmt.Errorf("%s: layer %d is %q, but windows are not supported in this family", key, i, t)
		}
	}
	return nil
}

var qwen2MoENames = func() tensorNames {
	n := llamaNames
	n.experts = expertNames{router: "mlp.gate", list: "mlp.experts", gate: "gate_proj", up: "up_proj", down: "down_proj",
		shared: "mlp.shared_expert", sharedGate: "mlp.shared_expert_gate"}
	return n
}()
