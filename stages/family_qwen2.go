package stages

// Qwen2 is the family of Qwen 2 and 2.5: Llama with biases on q, k and v, whose later layers may
// attend to a window of positions only.
const Qwen2 = "qwen2"

type qwen2Family struct{ rotary }

func (qwen2Family) name() string  { return Qwen2 }
func (qwen2Family) class() string { return "Qwen2ForCausalLM" }

func (f qwen2Family) check(c Config) error {
	if err := c.plain(); err != nil {
		return err
	}
	return f.rotary.check(c)
}

func (qwen2Family) build(m *Model) { rotary{qkvBias: true}.build(m) }

func (f qwen2Family) keys(r *reading) rules {
	r.vocab.value, r.positions.value, r.hidden.value, r.layers.value, r.heads.value, r.ffn.value = 151936, 32768, 4096, 32, 32, 22016
	r.kvHeads.value = 32
	own := f.rotary.keys(r)
	own["attention_bias"] = only(`true`, `null`)
	r.windows.layerKeys(own)
	return own
}

func (f qwen2Family) read(r *reading, c *Config) error {
	if err := r.windows.read(c); err != nil {
		return err
	}
	return f.rotary.read(r, c)
}

func (f qwen2Family) write(c Config, h *hfWritten) {
	f.rotary.write(c, h)
	h.writeLayerWindows(c)
}
