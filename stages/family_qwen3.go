package stages

import "fmt"

// Qwen3 is the family of Qwen 3: Llama with a norm on each head of q and k, and with a head width
// that is set separately.
const Qwen3 = "qwen3"

type qwen3Family struct{ rotary }

func (qwen3Family) name() string  { return Qwen3 }
func (qwen3Family) class() string { return "Qwen3ForCausalLM" }

func (f qwen3Family) check(c Config) error {
	if c.MLPBias {
		return fmt.Errorf("%w: qwen3 has no mlp_bias: leave it out", ErrModel)
	}
	return f.rotary.check(c)
}

func (qwen3Family) build(m *Model) {
	bias := m.Config.AttentionBias
	rotary{qkvBias: bias, outputBias: bias, headNorms: true}.build(m)
}

func (f qwen3Family) keys(r *reading) rules {
	r.vocab.value, r.positions.value, r.hidden.value, r.layers.value, r.heads.value, r.ffn.value = 151936, 32768, 4096, 32, 32, 22016
	r.kvHeads.value, r.headDim.value = 32, 128
	own := f.rotary.keys(r)
	own["head_dim"] = whole(&r.headDim, 1, MaxHidden)
	own["attention_bias"] = truth(&r.attentionBias)
	r.windows.layerKeys(own)
	return own
}

func (f qwen3Family) read(r *reading, c *Config) error {
	if err := r.windows.read(c); err != nil {
		return err
	}
	c.AttentionBias = r.attentionBias.value
	return f.rotary.read(r, c)
}

func (f qwen3Family) write(c Config, h *hfWritten) {
	f.rotary.write(c, h)
	h.writeLayerWindows(c)
	h.AttentionBias = c.AttentionBias
}
