package stages

import "errors"

// OLMo2 and OLMo3 are the families of OLMo 2 and 3: Llama with norms after attention and after the
// feed-forward part, none before, and a norm over all heads of q and of k. In OLMo 3 three of four
// layers have a window, and only the others scale their rotary positions.
const (
	OLMo2 = "olmo2"
	OLMo3 = "olmo3"
)

var olmo2Family = &decoder{
	model: OLMo2, hf: "Olmo2ForCausalLM", names: olmoNames, spec: olmoLayer,
	sizes:  sizes{vocab: 50304, positions: 2048, hidden: 4096, layers: 32, heads: 32, ffn: 11008, eps: 1e-5, theta: 10000},
	own:    []keySet{noPadding, attentionBias(false)},
	limits: func(c Config) error { return errors.Join(c.noWindow(), c.noMLPBias()) },
}

var olmo3Family = &decoder{
	model: OLMo3, hf: "Olmo3ForCausalLM", names: olmoNames,
	sizes: sizes{vocab: 50304, positions: 2048, hidden: 4096, layers: 32, heads: 32, ffn: 11008, eps: 1e-5, theta: olmo3Theta},
	own:   []keySet{noPadding, attentionBias(false), patternWindows(4096, 4, ""), ropeByType(olmo3Theta, olmo3Theta, "rope_theta")},
	spec: func(c Config, i int, l *layerSpec) {
		olmoLayer(c, i, l)
		if l.window > 0 {
			l.rope = &ropeSpec{theta: c.windowTheta()}
		}
	},
	limits: func(c Config) error { return c.noMLPBias() },
	scratch: func(c *Config) {
		if c.Window > 0 && len(everyNth(4, c.Layers)) < c.Layers {
			c.Full = everyNth(4, c.Layers)
		}
	},
}

const olmo3Theta = 5e5

func olmoLayer(_ Config, _ int, l *layerSpec) { l.norms, l.qkNorm = normsAfter, qkNormWidth }

var olmoNames = func() tensorNames {
	n := llamaNames
	n.norm1, n.norm2, n.after1, n.after2 = "", "", "post_attention_layernorm", "post_feedforward_layernorm"
	return n
}()
