package stages

import "fmt"

// Llama is the family of Llama 1 to 3.2 and of all models stored in its format, such as TinyLlama
// and SmolLM2.
const Llama = "llama"

type llamaFamily struct{ rotary }

func (llamaFamily) name() string  { return Llama }
func (llamaFamily) class() string { return "LlamaForCausalLM" }

func (f llamaFamily) check(c Config) error {
	switch {
	case c.Hidden%c.Heads != 0: // transformers derives one width of a head by default
		return fmt.Errorf("%w: hidden %d is not a multiple of heads %d", ErrModel, c.Hidden, c.Heads)
	case c.Window != 0:
		return fmt.Errorf("%w: llama has no window: use the family mistral, which is llama with a window", ErrModel)
	}
	return f.rotary.check(c)
}

func (llamaFamily) build(m *Model) {
	c := m.Config
	rotary{qkvBias: c.AttentionBias, outputBias: c.AttentionBias, mlpBias: c.MLPBias}.build(m)
}

func (f llamaFamily) keys(r *reading) rules {
	r.vocab.value, r.positions.value, r.hidden.value, r.layers.value, r.heads.value, r.ffn.value = 32000, 2048, 4096, 32, 32, 11008
	own := f.rotary.keys(r)
	own["max_sequence_length"] = whole(&r.positions, 1, MaxContext) // an earlier name of the key
	own["attention_bias"] = orNull(truth(&r.attentionBias))
	own["mlp_bias"] = orNull(truth(&r.mlpBias))
	own["is_llama_config"] = neutral
	own["pretraining_tp"] = neutral // splits products into slices, which only changes rounding
	return own
}

func (f llamaFamily) read(r *reading, c *Config) error {
	c.AttentionBias, c.MLPBias = r.attentionBias.value, r.mlpBias.value
	return f.rotary.read(r, c)
}

func (f llamaFamily) write(c Config, h *hfWritten) {
	f.rotary.write(c, h)
	h.AttentionBias, h.MLPBias = c.AttentionBias, c.MLPBias
}
