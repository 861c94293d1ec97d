package stages

// Qwen3 is the family of Qwen 3: Llama with a norm on each head of q and k, and with a head width
// that is set separately.
const Qwen3 = "qwen3"

var qwen3Family = &decoder{
	model: Qwen3, hf: "Qwen3ForCausalLM", names: llamaNames,
	sizes: sizes{vocab: 151936, positions: 32768, hidden: 4096, layers: 32, heads: 32, ffn: 22016, kvHeads: 32, headDim: 128,
		eps: 1e-6, theta: 10000},
	own: []keySet{attentionBias(false), qwenWindows,
		{rules: func(r *reading) rules { return rules{"head_dim": whole(&r.headDim, 1, MaxHidden)} }}},
	spec:   func(_ Config, _ int, l *layerSpec) { l.qkNorm = qkNormHeads },
	limits: func(c Config) error { return c.noMLPBias() },
}
