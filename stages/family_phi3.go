package stages

import (
	"errors"
	"fmt"
)

// Phi3 is the family of Phi 3, 3.5, 4 and 4-mini: Llama whose files have one tensor for q, k and v
// and one for gate and up. All layers may have a window.
const Phi3 = "phi3"

var phi3Family = &decoder{
	model: Phi3, hf: "Phi3ForCausalLM", names: phi3Names,
	sizes: sizes{vocab: 32064, positions: 4096, hidden: 3072, layers: 32, heads: 32, ffn: 8192, eps: 1e-5, theta: 10000},
	own: []keySet{noPadding, oneWindow(0), partialRotary, originalPositions(4096), fixed("lm_head_bias", `false`, `null`),
		fixed("full_attn_mod", `1`, `null`),
		fixed("interpolate_factor", `1`, `null`), ignored("auto_map")},
	limits: func(c Config) error { return errors.Join(c.plain(), c.allWindowed(), phi3Rope(c.RopeScaling)) },
}

// phi3Rope refuses what the class of transformers refuses.
func phi3Rope(s RopeScaling) error {
	if s.Type == "" || s.Type == ropeLongrope {
		return nil
	}
	return fmt.Errorf("%w: rope scaling: type is %q, but %s has only %q and %q", ErrModel, s.Type, Phi3, ropeDefault, ropeLongrope)
}

var phi3Names = func() tensorNames {
	n := llamaNames
	n.qkv, n.gateUp = "self_attn.qkv_proj", "mlp.gate_up_proj"
	return n
}()
