package stages

import "errors"

// Phi3 is the family of Phi 3, 3.5, 4 and 4-mini: Llama whose files have one tensor for q, k and v
// and one for gate and up. All layers may have a window.
const Phi3 = "phi3"

var phi3Family = &decoder{
	model: Phi3, hf: "Phi3ForCausalLM", names: phi3Names,
	sizes: sizes{vocab: 32064, positions: 4096, hidden: 3072, layers: 32, heads: 32, ffn: 8192, eps: 1e-5, theta: 10000},
	own: []keySet{noPadding, oneWindow(0), partialRotary, originalPositions(4096), fixed("lm_head_bias", `false`, `null`),
		fixed("full_attn_mod", `1`, `null`),
		fixed("interpolate_factor", `1`, `null`), ignored("auto_map")},
	limits: func(c Config) error { return errors.Join(c.plain(), c.allWindowed()) },
}

var phi3Names = func() tensorNames {
	n := llamaNames
	n.qkv, n.gateUp = "self_attn.qkv_proj", "mlp.gate_up_proj"
	return n
}()
