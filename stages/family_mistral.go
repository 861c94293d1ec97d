package stages

import "errors"

// Mistral is the family of Mistral: Llama whose layers may attend to a window of positions only.
const Mistral = "mistral"

var mistralFamily = &decoder{
	model: Mistral, hf: "MistralForCausalLM", names: llamaNames,
	sizes:  sizes{vocab: 32000, positions: 4096 * 32, hidden: 4096, layers: 32, heads: 32, ffn: 14336, kvHeads: 8, eps: 1e-6, theta: 10000},
	own:    []keySet{oneWindow(4096)},
	limits: func(c Config) error { return errors.Join(c.plain(), c.allWindowed()) },
}
