package stages

import "math"

// Granite is the family of Granite 3, dense: Llama with multipliers of the embeddings, the scores,
// the residual branches and the logits.
const Granite = "granite"

var graniteFamily = &decoder{
	model: Granite, hf: "GraniteForCausalLM", names: llamaNames,
	sizes: sizes{vocab: 32000, positions: 2048, hidden: 4096, layers: 32, heads: 32, ffn: 11008, eps: 1e-6, theta: 10000},
	own: []keySet{noPadding, attentionBias(false), mlpBias(false),
		factor("embedding_multiplier", 1, one, func(c *Config) *float64 { return &c.EmbeddingScale }),
		factor("residual_multiplier", 1, one, func(c *Config) *float64 { return &c.ResidualScale }),
		factor("logits_scaling", 1, one, func(c *Config) *float64 { return &c.LogitDivisor }),
		factor("attention_multiplier", 1, usualScale, func(c *Config) *float64 { return &c.AttentionScale }),
	},
	limits: func(c Config) error { return c.noWindow() },
	// The multipliers of Granite 3.3 2B, in which a head has 64 channels and the scores' factor is
	// 1/64 (its published config.json).
	scratch: func(c *Config) {
		c.EmbeddingScale, c.ResidualScale, c.LogitDivisor, c.AttentionScale = 12, 0.22, 8, 1/float64(c.headDim())
	},
}

// one and usualScale are the values of multipliers that have no effect.
func one(Config) float64          { return 1 }
func usualScale(c Config) float64 { return 1 / math.Sqrt(float64(c.headDim())) }
