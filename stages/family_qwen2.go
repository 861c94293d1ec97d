package stages

// Qwen2 is the family of Qwen 2 and 2.5: Llama with biases on q, k and v, whose later layers may
// attend to a window of positions only.
const Qwen2 = "qwen2"

var qwen2Family = &decoder{
	model: Qwen2, hf: "Qwen2ForCausalLM", names: llamaNames,
	sizes:  sizes{vocab: 151936, positions: 32768, hidden: 4096, layers: 32, heads: 32, ffn: 22016, kvHeads: 32, eps: 1e-6, theta: 10000},
	own:    []keySet{fixed("attention_bias", `true`, `null`), qwenWindows},
	spec:   func(_ Config, _ int, l *layerSpec) { l.qkvBias, l.outputBias = true, false },
	limits: func(c Config) error { return c.plain() },
}
