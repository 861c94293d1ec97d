package stages

import (
	"math"

	"github.com/troupe-ml/troupe/tensorops"
)

// Example is a family that no published model has: a table of all switches, also of those that the
// other families leave off. FAMILIES.md takes it as its example.
const Example = "example"

func init() { moreLanguages = append(moreLanguages, exampleFamily) }

var exampleFamily = &decoder{
	model: Example, hf: "ExampleForCausalLM",
	sizes: sizes{vocab: 100, positions: 32, hidden: 8, layers: 2, heads: 2, ffn: 12, eps: 1e-6, theta: 10000, tie: true},
	names: exampleNames(),
	own: []keySet{attentionBias(false), noRopeKeys, patternWindows(4, 2, ""), ropeByType(10000, 100, "rope_local_base_freq"),
		factor("residual_multiplier", 1, one, func(c *Config) *float64 { return &c.ResidualScale }),
		factor("attention_multiplier", 1, usualScale, func(c *Config) *float64 { return &c.AttentionScale }),
	},
	spec: func(c Config, _ int, l *layerSpec) {
		l.norms, l.normOffset, l.qkNorm = normsBoth, 1, qkNormHeads
		l.softCap, l.sinks = 3, true
		l.gated, l.act.Act = false, tensorops.ReLU2
		if l.window > 0 && l.rope != nil {
			l.rope = &ropeSpec{theta: c.windowTheta()}
		}
	},
	finish: func(c Config, e *endsSpec) {
		e.embedding, e.normOffset, e.logitDivisor, e.logitSoftCap = math.Sqrt(float64(c.Hidden)), 1, 2, 4
	},
	limits:  func(c Config) error { return c.noMLPBias() },
	scratch: func(c *Config) { c.NoRope = everyNth(2, c.Layers) },
}

func exampleNames() tensorNames {
	n := llamaNames
	n.after1, n.norm2, n.after2 = "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"
	n.sinks = "self_attn.sinks"
	return n
}
