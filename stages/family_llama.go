package stages

import "fmt"

// Llama is the family of Llama 1 to 3.2 and of all models stored in its format, such as TinyLlama
// and SmolLM2.
const Llama = "llama"

var llamaFamily = &decoder{
	model: Llama, hf: "LlamaForCausalLM", names: llamaNames,
	sizes: sizes{vocab: 32000, positions: 2048, hidden: 4096, layers: 32, heads: 32, ffn: 11008, eps: 1e-6, theta: 10000},
	own: []keySet{
		attentionBias(true), mlpBias(true),
		{rules: func(r *reading) rules {
			return rules{"max_sequence_length": whole(&r.positions, 1, MaxContext)} // an earlier name of the key
		}},
		ignored("is_llama_config", "pretraining_tp"), // the latter splits products into slices, which only changes rounding
	},
	limits: func(c Config) error {
		switch {
		case c.Hidden%c.Heads != 0: // transformers derives one width of a head by default
			return fmt.Errorf("%w: hidden %d is not a multiple of heads %d", ErrModel, c.Hidden, c.Heads)
		case c.Window != 0:
			return fmt.Errorf("%w: llama has no window: use the family mistral, which is llama with a window", ErrModel)
		}
		return nil
	},
}
